"""SPDL: a pipeline of threads in one process, fed from the folder.

``spdl`` decodes and augments with torchvision, as its migration guide begins; ``spdl-ffmpeg`` goes
on to its own I/O, where FFmpeg decodes, crops, resizes and flips, and frames are joined into a
batch without tensors in between.
"""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import spdl.io
import torch
from spdl.dataloader import DataLoader
from spdl.source import DistributedRandomSampler
from torch import Tensor
from torchvision.datasets import ImageFolder

from peers import Job
from peers.torchvision_v2 import read, transform

_RANDOM = random.Random(0)  # noqa: S311 - no secrets here


def epochs(job: Job) -> Iterator[Iterator[Tensor]]:
    """Epochs of batches, as ``peers`` says."""
    torch.set_num_threads(1)  # the pipeline has the threads, as a DataLoader has the processes
    paths = [path for path, _ in ImageFolder(job.images).samples]
    load, join = _ffmpeg(job.size) if job.name == "spdl-ffmpeg" else _torchvision(job.size)
    sampler = DistributedRandomSampler(len(paths), rank=0, world_size=1)
    loader = DataLoader(
        sampler,
        preprocessor=lambda index: load(paths[index]),
        batch_size=job.batch,
        drop_last=True,
        aggregator=join,
        num_threads=job.threads,
    )
    epoch = 0
    while True:
        sampler.shuffle(epoch)
        yield iter(loader)
        epoch += 1


def _torchvision(size: int) -> tuple[Callable[[str], Any], Callable[[list[Any]], Tensor]]:
    augment = transform(size)
    return lambda path: augment(read(path)), torch.stack


def _ffmpeg(size: int) -> tuple[Callable[[str], Any], Callable[[list[Any]], Tensor]]:
    def load(path: str) -> Any:
        packets = spdl.io.demux_image(path)
        chain = _filters(packets.width, packets.height, size)
        return spdl.io.decode_packets(packets, filter_desc=chain)

    def join(frames: list[Any]) -> Tensor:
        batch: Tensor = spdl.io.to_torch(spdl.io.convert_frames(frames))  # (N, H, W, 3) uint8
        return batch

    return load, join


def _filters(width: int, height: int, size: int) -> str:
    """FFmpeg's filters for a random-resized crop and a flip."""
    x, y, w, h = _box(width, height)
    flip = "hflip," if _RANDOM.random() < 0.5 else ""
    return f"crop={w}:{h}:{x}:{y}:exact=1,scale={size}:{size}:flags=bilinear,{flip}format=rgb24"


def _box(width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of a crop, distributed as torchvision's RandomResizedCrop."""
    for _ in range(10):
        area = width * height * _RANDOM.uniform(0.08, 1.0)
        ratio = math.exp(_RANDOM.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return _RANDOM.randint(0, width - w), _RANDOM.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h
