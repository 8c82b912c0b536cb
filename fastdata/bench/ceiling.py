"""The share of the ceiling on a data set, with a cold first pass and a spinning loader."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from fastdata.batch.batch import Batch
from fastdata.bench import page_cache
from fastdata.bench.forms import Tell
from fastdata.bench.results import CeilingReport, ColdPass
from fastdata.bench.usage import Usage
from fastdata.errors import OptionError
from fastdata.loaders.loader import Loader
from fastdata.plan.crop import RandomResizedCrop
from fastdata.system import resources
from fastdata.train.ceiling import ROUNDS, measure_ceiling
from fastdata.train.data import check_labelled
from fastdata.train.device import amp_dtype, kernels, pick_device, seeded
from fastdata.train.meter import machine, now
from fastdata.train.models import build
from fastdata.train.recipe import Recipe
from fastdata.train.step import TrainStep


def bench_ceiling(
    path: str | os.PathLike[str],
    recipe: Recipe | None = None,
    *,
    device: str | torch.device | None = None,
    threads: int | None = None,
    seconds: float = 60.0,
    rounds: int = ROUNDS,
    cold: bool = True,
    progress: Tell | None = None,
) -> CeilingReport:
    """Measure the share of the ceiling: first a pass on a cold page cache, then the rounds.

    Before the cold pass the kernel is asked to evict the data set's files; before the rounds they
    are read into memory, if they fit. The share of bytes that came from storage shows how cold and
    how warm it was. The rounds are those of :func:`fastdata.train.ceiling.measure_ceiling`, with
    the loader spinning.

    Args:
        path: Tar shards, an ``.lmdb`` file, or class folders of images.
        recipe: How to train; None is the reference recipe.
        device: Where to train; None is CUDA if there is a GPU, otherwise the CPU.
        threads: Decoding threads; None leaves one or two cores to the training step.
        seconds: Time for the rounds, roughly; the cold pass may take a fifth of it on top.
        rounds: Number of rounds.
        cold: Whether to begin with the cold pass.
        progress: Called with what is being done, how much of it is done, and how much there is.

    Raises:
        OptionError: An argument is out of range or does not fit the data or the device.
        NotADatasetError: There is no data set at ``path``.
        CorruptError: It is damaged.
        MissingExtraError: torchvision is not installed.
    """
    if rounds < 1:
        raise OptionError(f"rounds must be 1 or more, not {rounds}")
    if not 0 < seconds < float("inf"):
        raise OptionError(f"seconds must be a positive number, not {seconds}")
    recipe = recipe or Recipe()
    chosen = pick_device(device)
    dtype = amp_dtype(recipe.amp, chosen)
    decoding = resources.decode_threads() if threads is None else threads
    tell = progress or (lambda *_: None)
    loader = Loader(
        path,
        recipe.batch_size,
        crop=RandomResizedCrop(recipe.size, flip=0.5),
        seed=recipe.seed,
        device=chosen,
        dtype=dtype or torch.float32,
        threads=decoding,
    )
    with loader, kernels(recipe, chosen), seeded(recipe.seed, chosen):
        check_labelled(loader.source)
        network = build(recipe.model, classes=len(loader.source.classes), size=recipe.size)
        step = TrainStep(recipe, network, chosen)
        tell("warm-up", 0, 1)
        step.warm_up(recipe.batch_size, recipe.size)
        tell("warm-up", 1, 1)

        files = Path(path)
        first = None
        if cold and page_cache.evict(files):
            tell("cold pass", 0, 1)
            first = _cold_pass(step, loader, seconds / 5)
            tell("cold pass", 1, 1)
        page_cache.warm(files, lambda *at: tell("read", *at))

        watched = _Watched(loader)
        usage = Usage(chosen)
        found = measure_ceiling(
            step,
            watched,
            seconds=seconds,
            rounds=rounds,
            spinning=True,
            beside=usage,
            progress=lambda done: tell("rounds", done, rounds),
        )
        return CeilingReport(
            path=os.fspath(path),
            samples=len(loader.source),
            model=recipe.model,
            size=recipe.size,
            batch_size=recipe.batch_size,
            amp=recipe.amp,
            compile=recipe.compile,
            channels_last=recipe.channels_last,
            threads=decoding,
            device=str(chosen),
            cold=first,
            ceiling=found,
            from_storage=watched.from_storage(),
            gpu_utilization=usage.gpu_utilization,
            sm_activity=usage.activity.sm,
            tensor_activity=usage.activity.tensor,
            cpu_share=usage.cpu_share,
            peak_memory_bytes=usage.peak_memory_bytes,
            machine=machine(chosen),
        )


class _Watched:
    """A loader that keeps track of how many of its bytes came from storage."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._ids: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        self._before = page_cache.from_storage()

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loader:
            self._ids.append(batch.ids)
            yield batch

    def from_storage(self) -> float | None:
        """Share of the bytes of the images so far, capped at 1, as some are read ahead."""
        after = page_cache.from_storage()
        if self._before is None or after is None:
            return None
        lengths = self._loader.source.rows(np.concatenate(self._ids))["length"]
        return min(1.0, (after - self._before) / int(lengths.sum()))


def _cold_pass(step: TrainStep, loader: Loader, seconds: float) -> ColdPass:
    """Steps on images that were not read before, for one pass at most."""
    watched = _Watched(loader)
    steps = images = 0
    with step.preserved():
        began = now(step.device)
        for batch in itertools.islice(watched, len(loader)):
            step(batch.images, batch.labels, lr=0.0)
            steps, images = steps + 1, images + len(batch.labels)
            if time.perf_counter() - began > seconds:
                break
        took = now(step.device) - began
    return ColdPass(images / took, steps, watched.from_storage())
