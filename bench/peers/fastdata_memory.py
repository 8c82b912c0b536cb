"""fastdata's native core without its loader: packed images in memory, decoded by as many threads.

No loader at all; the row says how much of what the cores can decode ``fd.Loader`` delivers.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from images import jpegs
from native import MemoryDecoder, packed

from fastdata.images.probe import probe
from fastdata.plan.crop import RandomResizedCrop
from peers import Job

_AHEAD = 2  # batches begun before the one that is waited for


def prepare(job: Job) -> None:
    """Write each image as it is packed."""
    for number, path in enumerate(jpegs(job.images)):
        (job.form / f"{number:08}.jpg").write_bytes(packed(path.read_bytes()))


def epochs(job: Job) -> Iterator[Iterator[torch.Tensor]]:
    """Epochs of batches, as ``peers`` says; always in the same order."""
    decoder = MemoryDecoder(job.threads)
    images = [path.read_bytes() for path in sorted(job.form.glob("*.jpg"))]
    infos = [probe(data) for data in images]
    sizes = np.array([(info.width, info.height) for info in infos], np.int64)  # (n, 2)
    starts = range(0, len(images) - job.batch + 1, job.batch)
    batches = [decoder.load(images[start : start + job.batch]) for start in starts]
    del images
    epoch = 0
    while True:
        yield _epoch(job, decoder, batches, sizes, epoch)
        epoch += 1


def _epoch(
    job: Job, decoder: MemoryDecoder, batches: list[Any], sizes: npt.NDArray[np.int64], epoch: int
) -> Iterator[torch.Tensor]:
    """Decode each batch; the tensors of past batches are overwritten."""
    shape = (job.batch, job.size, job.size, 3)
    outs = [np.empty(shape, np.uint8) for _ in range(_AHEAD + 1)]
    begun: deque[tuple[Any, npt.NDArray[np.uint8]]] = deque()
    crop = RandomResizedCrop(job.size, flip=0.5)
    for number, batch in enumerate(batches):
        ids = np.arange(number * job.batch, (number + 1) * job.batch)
        plan = crop.plan(sizes[ids], ids, seed=0, epoch=epoch)
        out = outs[number % len(outs)]
        begun.append((decoder.start(batch, plan, out), out))
        if len(begun) > _AHEAD:
            yield _finished(decoder, *begun.popleft())
    while begun:
        yield _finished(decoder, *begun.popleft())


def _finished(decoder: MemoryDecoder, started: Any, out: npt.NDArray[np.uint8]) -> torch.Tensor:
    decoder.finish(started)
    return torch.from_numpy(out)
