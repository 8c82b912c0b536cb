"""WebDataset: tar shards by its own writer, shuffled shards and a buffer, batches made in workers.

It leaves decoding to its user; torchvision's tensors are quicker than its own Pillow decoder.
"""

from collections.abc import Iterator
from typing import Any

import torch
import webdataset as wds
from torch import Tensor
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image

from peers import Job
from peers.torchvision_v2 import transform

_SHARDS = 8  # for each worker, so that none ends long before another


def prepare(job: Job) -> None:
    """Write shards of shuffled samples."""
    samples = ImageFolder(job.images).samples
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0)).tolist()
    most = -(-len(samples) // (_SHARDS * job.threads))
    with wds.ShardWriter(str(job.form / "%06d.tar"), maxcount=most, verbose=0) as writer:
        for number, index in enumerate(order):
            path, label = samples[index]
            with open(path, "rb") as file:
                writer.write({"__key__": f"{number:08}", "jpg": file.read(), "cls": label})


def epochs(job: Job) -> Iterator[Iterator[Tensor]]:
    """Epochs of batches, as ``peers`` says."""
    shards = sorted(map(str, job.form.glob("*.tar")))
    augment = transform(job.size)

    def decode(sample: dict[str, Any]) -> tuple[Tensor, int]:
        data = torch.frombuffer(bytearray(sample["jpg"]), dtype=torch.uint8)
        return augment(decode_image(data, ImageReadMode.RGB)), int(sample["cls"])

    dataset = wds.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).map(decode)
    loader = wds.WebLoader(
        dataset.batched(job.batch, partial=False),
        batch_size=None,
        num_workers=job.threads,
        persistent_workers=True,
    )
    while True:
        yield (images for images, _ in loader)
