"""The batches of a rung: from torch's DataLoader over ImageFolder, or from fastdata."""

import itertools
import re
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from fastdata.bench.rungs import Rung
from fastdata.device.normalize import IMAGENET
from fastdata.errors import MissingExtraError, OptionError
from fastdata.loaders.loader import Loader
from fastdata.plan.crop import RandomResizedCrop
from fastdata.train.device import amp_dtype

Feed = Generator[tuple[torch.Tensor, torch.Tensor]]
"""Endless: images (N, 3, size, size) of normalised floats, and labels (N,), on the device."""

_DEADLINE = 300.0  # seconds that the DataLoader waits for a worker
_LOST = re.compile(
    r"DataLoader worker \(pid.*\) (is killed|exited)|unable to (open|write) .*shm|No space"
)
_SHM = "/dev/shm"  # noqa: S108  # looked at, not written to


class LostWorkerError(OptionError):
    """A worker process of the DataLoader died."""


# Epochs in one iteration of the DataLoader: starting the next one would restart its workers.
_EPOCHS = 1 << 20


def open_feed(rung: Rung, *, folder: Path, packed: Path, size: int, device: torch.device) -> Feed:
    """Open a rung's batches; reading starts with the first ``next()``.

    Args:
        rung: Loader, batch size, workers and precision.
        folder: Image folder, for ``rung.loader == "ImageFolder"``.
        packed: The same images packed, for ``"fastdata"``.
        size: Side of the random-resized crops in pixels.
        device: Where batches go.

    Raises:
        MissingExtraError: torchvision is not installed.
        OptionError: ImageFolder cannot read the folder, or one of its images.
    """
    if rung.loader == "fastdata":
        return _packed(rung, packed, size, device)
    try:
        from torchvision.datasets import ImageFolder
        from torchvision.transforms import v2
    except ImportError as error:
        raise MissingExtraError(
            "the ladder starts with torchvision; install it with: pip install 'fastdata[train]'"
        ) from error
    steps = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    if not rung.uint8:
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(*IMAGENET)]
    try:
        data = ImageFolder(str(folder), v2.Compose(steps), allow_empty=True)
    except OSError as error:
        raise OptionError(f"{folder}: torchvision's ImageFolder cannot read it: {error}") from error
    return _folder(rung, data, device)


def _folder(rung: Rung, data: Any, device: torch.device) -> Feed:
    """Batches of an ``ImageFolder``; closing the generator ends its workers."""
    from torchvision.transforms.v2 import functional

    batches = DataLoader(
        data,
        rung.batch_size,
        sampler=RandomSampler(data, num_samples=_EPOCHS * len(data)),
        num_workers=rung.workers,
        pin_memory=rung.pinned and device.type == "cuda",
        timeout=_DEADLINE if rung.workers else 0,
    )
    iterator = iter(batches)
    while True:
        try:
            images, labels = next(iterator)
        except (OSError, RuntimeError, SyntaxError) as error:  # Pillow's; from a worker, any kind
            if _LOST.search(str(error)):
                raise LostWorkerError(
                    f"the DataLoader lost one of its {rung.workers} workers ({_last_line(error)}); "
                    f"{_shared_memory()}"
                ) from error
            raise OptionError(
                f"{data.root}: a DataLoader over ImageFolder fails on an image that fastdata would "
                f"skip; remove the image: {_last_line(error)}"
            ) from error
        images = images.to(device, non_blocking=rung.pinned)
        labels = labels.to(device, non_blocking=rung.pinned)
        if rung.uint8:
            images = functional.to_dtype(images, torch.float32, scale=True)
            images = functional.normalize(images, *map(list, IMAGENET), inplace=True)
        yield images, labels


def _packed(rung: Rung, packed: Path, size: int, device: torch.device) -> Feed:
    """Fastdata's batches in the type of the forward pass, as in the reference run."""
    with Loader(
        packed,
        rung.batch_size,
        crop=RandomResizedCrop(size, flip=0.5),
        device=device,
        dtype=amp_dtype(rung.amp, device) or torch.float32,
        threads=max(1, rung.workers),
    ) as loader:
        for batch in itertools.chain.from_iterable(itertools.repeat(loader)):
            yield batch.images, batch.labels


def _shared_memory() -> str:
    """How full the shared memory is: a worker that dies silently most often ran out of it."""
    try:
        room = shutil.disk_usage(_SHM)
    except OSError:
        return f"there is no {_SHM} for its batches"
    sizes = f"{room.total >> 20:,} MiB, {room.free >> 20:,} MiB of them free"
    return f"its batches pass through {_SHM}, which has {sizes}"


def _last_line(error: BaseException) -> str:
    """The last line of a worker's traceback."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
