"""MosaicML Streaming: MDS shards of JPEGs as they are, read from a local folder.

Its own ``jpeg`` columns give Pillow images; torchvision's tensors are quicker, so the column holds
bytes.
"""

from collections.abc import Iterator
from typing import Any

import torch
from streaming import MDSWriter, StreamingDataset
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image

from peers import Job
from peers.torchvision_v2 import transform


def prepare(job: Job) -> None:
    """Write shards of shuffled samples, as its documentation advises."""
    samples = ImageFolder(job.images).samples
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0)).tolist()
    with MDSWriter(out=str(job.form), columns={"image": "bytes", "label": "int"}) as writer:
        for index in order:
            path, label = samples[index]
            with open(path, "rb") as file:
                writer.write({"image": file.read(), "label": label})


def epochs(job: Job) -> Iterator[Iterator[Tensor]]:
    """Epochs of batches, as ``peers`` says."""
    loader: DataLoader[Any] = DataLoader(
        _Images(job),
        batch_size=job.batch,
        num_workers=job.threads,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        yield (images for images, _ in loader)


class _Images(StreamingDataset):  # type: ignore[misc]  # has no annotations
    """Decoded, cropped, flipped images and their labels."""

    def __init__(self, job: Job) -> None:
        super().__init__(local=str(job.form), shuffle=True, batch_size=job.batch)
        self._augment = transform(job.size)

    def __getitem__(self, at: Any) -> tuple[Tensor, int]:
        sample = super().__getitem__(at)
        data = torch.frombuffer(bytearray(sample["image"]), dtype=torch.uint8)
        return self._augment(decode_image(data, ImageReadMode.RGB)), sample["label"]
