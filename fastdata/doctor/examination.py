"""The measurements in their order, each on its own."""

import math
import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from fastdata.doctor.content import remedies, take
from fastdata.doctor.decoding import decoding_speeds, thread_counts
from fastdata.doctor.device import copying_speed, loader_speed, model_speed
from fastdata.doctor.places import open_with_places
from fastdata.doctor.results import Diagnosis, Measured, ModelSpeed, Settings
from fastdata.doctor.storage import measure_storage
from fastdata.doctor.surroundings import throttled, warnings
from fastdata.doctor.verdict import diagnose
from fastdata.errors import MissingExtraError, OptionError
from fastdata.loaders.loader import Loader
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.open_source import AnySource
from fastdata.plan.crop import RandomResizedCrop
from fastdata.system import resources
from fastdata.train.device import pick_device
from fastdata.train.meter import machine
from fastdata.train.recipe import Recipe
from fastdata.train.step import amp_dtype

STEPS = ("storage", "decoding", "packing", "loader", "copying", "model")
"""What is measured, in this order."""


def examine(
    path: str | os.PathLike[str],
    *,
    model: str | None = "resnet18",
    size: int = 224,
    batch_size: int = 64,
    amp: str = "off",
    compile: bool = False,
    channels_last: bool = False,
    device: str | torch.device | None = None,
    threads: int | None = None,
    prefetch: int = 2,
    seconds: float = 3.0,
    progress: Callable[[str, int], None] = lambda _name, _done: None,
) -> Diagnosis:
    """Measure what training on a data set is made of, and say what limits it.

    Storage, decoding, the copy to the device and the model are measured alone, so that none hides
    behind another, for random-resized crops. Bytes of the data set that are read, and what lies
    around them, leave the kernel's page cache once.

    Args:
        path: A packed data set, or a folder of images.
        model: torchvision's name of the model; None leaves it out.
        size: Side of the crops in pixels.
        batch_size: Images a step.
        amp: ``"off"``, ``"bf16"`` or ``"fp16"``.
        compile: Measure the model compiled.
        channels_last: Lay out weights channels last.
        device: Where to train; None means CUDA where there is one.
        threads: Decoding threads; None means what the loader takes by itself.
        prefetch: Batches that the loader begins ahead.
        seconds: Time for each measurement, without the warm-up of the model.
        progress: Called with the name of a step and how many are done, before each.

    Raises:
        NotADatasetError: There is no data set at ``path``.
        CorruptError: It is damaged.
        DecodeError: An image cannot be decoded.
        OptionError: An argument is out of range, or the model unknown.
    """
    if not 0 < seconds < math.inf:
        raise OptionError(f"seconds must be a positive number, found {seconds}")
    where = pick_device(device)
    dtype = amp_dtype(amp, where) or torch.float32
    free = resources.free_cores(resources.cpu_count())  # before anything of ours computes
    settings = Settings(
        path=os.fspath(path),
        batch_size=batch_size,
        size=size,
        device=str(where),
        dtype=str(dtype).removeprefix("torch."),
        threads=resources.decode_threads() if threads is None else threads,
        prefetch=prefetch,
        amp=amp,
        compile=compile,
        channels_last=channels_last,
    )
    recipe = None
    if model is not None:
        recipe = Recipe(
            model=model,
            size=size,
            batch_size=batch_size,
            amp=amp,
            compile=compile,
            channels_last=channels_last,
        )
    hot = throttled()
    measured, missing = _measure(settings, recipe, free, seconds, progress)
    progress("", len(STEPS))
    return diagnose(measured, (*missing, *warnings(measured, throttled() - hot)))


def _measure(
    settings: Settings,
    recipe: Recipe | None,
    free: float,
    seconds: float,
    progress: Callable[[str, int], None],
) -> tuple[Measured, tuple[str, ...]]:
    """Every figure, and a warning where the model could not be had."""
    crop = RandomResizedCrop(settings.size)
    device = torch.device(settings.device)
    with ExitStack() as stack:
        loader = _loader(settings, crop)  # first, as it checks the arguments
        stack.enter_context(loader)
        source, place = open_with_places(Path(settings.path))
        stack.enter_context(closing(source))
        progress(STEPS[0], 0)
        storage, ids = measure_storage(
            source, place, threads=settings.threads, seconds=seconds, size=_bytes(source)
        )
        resident, content = take(source, ids, seconds=seconds)
        stack.enter_context(closing(resident))
        progress(STEPS[1], 1)
        counts = thread_counts(resources.cpu_count(), settings.threads)
        decoding = decoding_speeds(resident, crop, counts, seconds=seconds)
        progress(STEPS[2], 2)
        packed = remedies(
            settings.path, resident, content, crop, threads=settings.threads, seconds=seconds
        )
        progress(STEPS[3], 3)
        loading = loader_speed(loader, seconds=seconds)
    progress(STEPS[4], 4)
    copying = copying_speed(settings, seconds=seconds)
    progress(STEPS[5], 5)
    model, missing = _model(recipe, max(2, len(source.classes)), device, seconds)
    measured = Measured(
        settings=settings,
        kind=source.kind,
        samples=len(source),
        content=content,
        storage=storage,
        decoding=decoding,
        loader=loading,
        copying=copying,
        model=model,
        remedies=packed,
        free_cores=free,
        machine=machine(device),
    )
    return measured, missing


def _loader(settings: Settings, crop: RandomResizedCrop) -> Loader:
    return Loader(
        settings.path,
        settings.batch_size,
        crop=crop,
        flip=0.5,
        drop_last=False,  # a data set may be smaller than a batch
        rank=0,
        world_size=1,
        device=settings.device,
        dtype=getattr(torch, settings.dtype),
        threads=settings.threads,
        prefetch=settings.prefetch,
    )


def _bytes(source: AnySource) -> int:
    """Size of the files that hold the samples."""
    if isinstance(source, FolderSource):
        return source.bytes
    return sum(shard.bytes for shard in source.manifest.shards)


def _model(
    recipe: Recipe | None, classes: int, device: torch.device, seconds: float
) -> tuple[ModelSpeed | None, tuple[str, ...]]:
    """The model's speed, and a warning where torchvision is missing."""
    if recipe is None:
        return None, ()
    try:
        return model_speed(recipe, classes, device, seconds=seconds), ()
    except MissingExtraError as error:
        return None, (f"the model was left out: {error}",)
