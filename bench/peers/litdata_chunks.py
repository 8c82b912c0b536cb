"""LitData: chunks of JPEGs as they are, StreamingDataset from a local folder."""

from collections.abc import Iterator
from typing import Any

import litdata
from torch import Tensor
from torchvision.datasets import ImageFolder

from peers import Job
from peers.torchvision_v2 import transform


def prepare(job: Job) -> None:
    """Write chunks."""
    litdata.optimize(
        fn=_sample,
        inputs=ImageFolder(job.images).samples,
        output_dir=str(job.form),
        chunk_bytes="64MB",
        num_workers=job.threads,
        mode="overwrite",
        verbose=False,
    )


def epochs(job: Job) -> Iterator[Iterator[Tensor]]:
    """Epochs of batches, as ``peers`` says."""
    augment = transform(job.size)

    def augmented(sample: dict[str, Any]) -> tuple[Tensor, int]:
        return augment(sample["image"]), sample["label"]

    loader = litdata.StreamingDataLoader(
        litdata.StreamingDataset(str(job.form), shuffle=True, drop_last=True, transform=augmented),
        batch_size=job.batch,
        num_workers=job.threads,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        yield (images for images, _ in loader)


def _sample(item: tuple[str, int]) -> dict[str, Any]:
    path, label = item
    return {"image": litdata.Jpeg(path=path), "label": label}
