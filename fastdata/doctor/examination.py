"""Measure each stage of training on its own, then combine the figures into a diagnosis."""

import math
import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import torch

from fastdata.doctor.content import remedies, take
from fastdata.doctor.decoding import decoding_speeds, thread_counts
from fastdata.doctor.device import copying_speed, loader_speed, model_speed
from fastdata.doctor.results import Diagnosis, Measured, ModelSpeed, Settings
from fastdata.doctor.storage import measure_storage, open_located
from fastdata.doctor.verdict import diagnose
from fastdata.doctor.warnings import throttled, warnings
from fastdata.errors import MissingExtraError, OptionError
from fastdata.loaders.loader import Loader
from fastdata.loaders.options import Ranks
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.packed import AnySource
from fastdata.plan.crop import RandomResizedCrop
from fastdata.system import resources
from fastdata.train.device import amp_dtype, pick_device
from fastdata.train.meter import machine
from fastdata.train.recipe import Recipe

STEPS = ("storage", "decoding", "packing", "loader", "copying", "model")
"""The measurements, in their order."""

_RECIPE = Recipe()


def examine(
    path: str | os.PathLike[str],
    recipe: Recipe = _RECIPE,
    *,
    with_model: bool = True,
    device: str | torch.device | None = None,
    threads: int | None = None,
    prefetch: int = 2,
    seconds: float = 3.0,
    progress: Callable[[str, int], None] = lambda _name, _done: None,
) -> Diagnosis:
    """Find the bottleneck of training on a data set, and suggest a fix.

    Storage, decoding, the copy to the device and the model are each measured alone, so that none
    hides another, for random-resized crops. The parts of the data set that are read are evicted
    from the kernel's page cache once.

    Args:
        path: A packed data set, or a folder of images.
        recipe: Model, crop size, batch size, precision and layout; the rest does not matter here.
        with_model: Whether to measure the model.
        device: Where to train; None is CUDA if there is a GPU, otherwise the CPU.
        threads: Decoding threads; None is the loader's default.
        prefetch: Batches that the loader prepares ahead.
        seconds: Time for each measurement, besides the warm-up of the model.
        progress: Called before each step with its name and the number of finished steps.

    Raises:
        NotADatasetError: There is no data set at ``path``.
        CorruptError: It is damaged.
        DecodeError: An image cannot be decoded.
        OptionError: An argument is out of range, or the model unknown.
    """
    if not 0 < seconds < math.inf:
        raise OptionError(f"seconds must be a positive number, not {seconds}")
    chosen = pick_device(device)
    dtype = amp_dtype(recipe.amp, chosen) or torch.float32
    free = resources.free_cores(resources.cpu_count())  # before our own threads compute
    settings = Settings(
        path=os.fspath(path),
        batch_size=recipe.batch_size,
        size=recipe.size,
        device=str(chosen),
        dtype=str(dtype).removeprefix("torch."),
        threads=resources.decode_threads() if threads is None else threads,
        prefetch=prefetch,
        amp=recipe.amp,
        compile=recipe.compile,
        channels_last=recipe.channels_last,
    )
    throttles = throttled()
    model = recipe if with_model else None
    measured, missing = _measure(settings, model, free, seconds, progress)
    progress("", len(STEPS))
    return diagnose(measured, (*missing, *warnings(measured, throttled() - throttles)))


def _measure(
    settings: Settings,
    recipe: Recipe | None,
    free: float,
    seconds: float,
    progress: Callable[[str, int], None],
) -> tuple[Measured, tuple[str, ...]]:
    """Every figure, and a warning if the model cannot be built."""
    crop = RandomResizedCrop(settings.size, flip=0.5)
    device = torch.device(settings.device)
    # Storage comes first, as it leaves its samples in memory for the other measurements, and the
    # model last, when the loader's threads have ended.
    with ExitStack() as stack:
        loader = _loader(settings, crop)  # first, because it checks the arguments
        stack.enter_context(loader)
        source, locate = open_located(Path(settings.path))
        stack.enter_context(closing(source))
        progress(STEPS[0], 0)
        storage, ids = measure_storage(
            source, locate, threads=settings.threads, seconds=seconds, size=_bytes(source)
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
        drop_last=False,  # a data set may be smaller than a batch
        ranks=Ranks(0, 1),
        device=settings.device,
        dtype=getattr(torch, settings.dtype),
        threads=settings.threads,
        prefetch=settings.prefetch,
    )


def _bytes(source: AnySource) -> int:
    """Size of the files with the samples."""
    if isinstance(source, FolderSource):
        return source.bytes
    return sum(shard.bytes for shard in source.manifest.shards)


def _model(
    recipe: Recipe | None, classes: int, device: torch.device, seconds: float
) -> tuple[ModelSpeed | None, tuple[str, ...]]:
    """The model's speed, and a warning if torchvision is missing."""
    if recipe is None:
        return None, ()
    try:
        return model_speed(recipe, classes, device, seconds=seconds), ()
    except MissingExtraError as error:
        return None, (f"the model was left out: {error}",)
