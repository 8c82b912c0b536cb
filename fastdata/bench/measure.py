"""Measure one rung: train as it says, timed on real data and on one batch that stays put."""

import gc
import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import torch

from fastdata.bench.feeds import Feed, open_feed
from fastdata.bench.forms import Forms
from fastdata.bench.results import Figures
from fastdata.bench.rungs import LadderSettings, Rung
from fastdata.bench.usage import Usage
from fastdata.train.device import seeded
from fastdata.train.meter import now
from fastdata.train.models import build
from fastdata.train.recipe import Recipe
from fastdata.train.step import TrainStep

_LEAD_IN = 3  # untimed steps, besides one for each worker: workers all start at once


def measure_rung(
    rung: Rung, settings: LadderSettings, forms: Forms, device: torch.device
) -> Figures:
    """Train a fresh model as a rung says, and free everything afterwards.

    Raises:
        OptionError: The model cannot take such batches; caused by ``torch.OutOfMemoryError`` where
            the device is too small.
    """
    try:
        with seeded(0, device), _cudnn(benchmark=rung.cudnn_benchmark):
            return _measure(rung, settings, forms, device)
    finally:  # after the tensors of _measure are gone
        gc.collect()
        if rung.compile:  # its caches hold the model
            torch.compiler.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _measure(rung: Rung, settings: LadderSettings, forms: Forms, device: torch.device) -> Figures:
    began = now(device)
    recipe = Recipe(
        model=settings.model,
        size=settings.size,
        batch_size=rung.batch_size,
        amp=rung.amp,
        channels_last=rung.channels_last,
        compile=rung.compile,
        fused=rung.fused,
    )
    network = build(settings.model, classes=forms.classes, size=settings.size)
    step = TrainStep(recipe, network, device)
    step.warm_up(rung.batch_size, settings.size)
    usage, clock = Usage(device), StepClock(device)
    feed = open_feed(
        rung, folder=forms.folder, packed=forms.packed, size=settings.size, device=device
    )
    with closing(feed):
        for images, labels in itertools.islice(feed, _LEAD_IN + rung.workers):
            step(images, labels, lr=0.0)
        warmup = now(device) - began
        with usage:
            real = _time(step, feed, clock, settings.seconds, settings.steps)
        fixed = tuple(part.clone() for part in next(feed))
    # With the loader stopped: a DataLoader would go on preparing batches in the background.
    resident = itertools.repeat(fixed)
    _time(step, resident, StepClock(device), 0.0, _LEAD_IN)
    ceiling = _time(step, resident, StepClock(device), settings.seconds / 2, settings.steps)
    return Figures(
        steps=len(clock.durations()),
        step_seconds=_quartiles(clock.durations()),
        images_per_second=real,
        resident_images_per_second=ceiling,
        share=real / ceiling,
        gpu_utilization=usage.gpu_utilization,
        sm_activity=usage.activity.sm,
        tensor_activity=usage.activity.tensor,
        cpu_share=usage.cpu_share,
        peak_memory_bytes=usage.peak_memory_bytes,
        warmup_seconds=warmup,
    )


def _time(
    step: TrainStep,
    feed: Feed | Iterator[tuple[torch.Tensor, ...]],
    clock: "StepClock",
    seconds: float,
    steps: int | None,
) -> float:
    """Images a second over ``steps`` steps, or over ``seconds`` seconds if that is None."""
    images_seen = 0
    began = now(step.device)
    clock.mark()
    for done in itertools.count(1):
        images, labels = next(feed)
        step(images, labels, lr=0.0)
        clock.mark()
        images_seen += len(labels)
        if done == steps or (steps is None and time.perf_counter() - began >= seconds):
            break
    return images_seen / (now(step.device) - began)


def _quartiles(durations: list[float]) -> tuple[float, float, float]:
    if len(durations) == 1:
        return durations[0], durations[0], durations[0]
    low, middle, high = statistics.quantiles(durations, n=4, method="inclusive")
    return low, middle, high


@contextmanager
def _cudnn(*, benchmark: bool) -> Iterator[None]:
    """Set whether cuDNN tries its kernels out, and restore the setting on exit."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = benchmark
    try:
        yield
    finally:
        cudnn.benchmark = before


class StepClock:
    """Time between the ends of steps on the device's own clock, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        """Start without marks."""
        self._device = device
        self._marks: list[torch.cuda.Event | float] = []

    def mark(self) -> None:
        """Mark the end of a step that was handed to the device, or the start of the first."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def durations(self) -> list[float]:
        """Seconds between each mark and the next; the device must have reached the last one."""
        return [_between(first, second) for first, second in itertools.pairwise(self._marks)]


def _between(first: torch.cuda.Event | float, second: torch.cuda.Event | float) -> float:
    if isinstance(first, float) or isinstance(second, float):
        assert isinstance(first, float)
        assert isinstance(second, float)
        return second - first
    milliseconds: float = first.elapsed_time(second)
    return milliseconds / 1000
