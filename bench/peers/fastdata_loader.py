"""fastdata: from the folder as it is, from tar shards, from LMDB, and with DALI as the decoder."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import fastdata as fd
from peers import Job

if TYPE_CHECKING:
    from torch import Tensor  # packing needs no torch


def prepare(job: Job) -> None:
    """Pack."""
    fd.pack(job.images, _path(job), workers=job.threads)


def epochs(job: Job) -> "Iterator[Iterator[Tensor]]":
    """Epochs of batches, as ``peers`` says."""
    kinds: dict[str, Callable[..., fd.Loader | fd.DALILoader]] = {
        "fastdata-dali": fd.DALILoader,
        "fastdata-dali-cut": functools.partial(fd.DALILoader, cut=True),
    }
    loader = kinds.get(job.name, fd.Loader)(
        _path(job),
        job.batch,
        crop=fd.RandomResizedCrop(job.size, flip=0.5),
        threads=job.threads,
    )
    while True:
        yield (batch.images for batch in loader)


def _path(job: Job) -> Path:
    forms = {
        "fastdata-folder": job.images,
        "fastdata-lmdb": job.form / "images.lmdb",
    }
    return forms.get(job.name, job.form / "shards")
