"""One rung of the ladder, measured."""

import gc
import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import torch

from fastdata.bench.clock import StepClock
from fastdata.bench.feeds import Feed, open_feed
from fastdata.bench.forms import Forms
from fastdata.bench.results import Figures
from fastdata.bench.rungs import Rung
from fastdata.bench.usage import Usage
from fastdata.train.device import seeded
from fastdata.train.meter import now
from fastdata.train.models import build
from fastdata.train.recipe import Recipe
from fastdata.train.step import TrainStep

_LEAD_IN = 3  # untimed steps, besides one for each worker: they all begin at once


@dataclass(frozen=True)
class Settings:
    """What all rungs have in common.

    Attributes:
        forms: The images.
        model: torchvision's name of the model.
        size: Side of the training crops in pixels.
        device: Where to train.
        seconds: Timed seconds on real data, roughly, and half of that on the resident batch.
        steps: Timed steps of each, in place of ``seconds``.
    """

    forms: Forms
    model: str
    size: int
    device: torch.device
    seconds: float
    steps: int | None


def measure_rung(rung: Rung, settings: Settings) -> Figures:
    """Train as a rung does, on a model of its own, and leave nothing of it.

    Raises:
        OptionError: The model cannot take such batches; from ``torch.OutOfMemoryError`` where the
            device is too small.
    """
    try:
        with seeded(0, settings.device), _cudnn(benchmark=rung.cudnn_benchmark):
            return _measure(rung, settings)
    finally:  # once its tensors are gone
        gc.collect()
        if rung.compile:
            torch.compiler.reset()
        if settings.device.type == "cuda":
            torch.cuda.empty_cache()


def _measure(rung: Rung, settings: Settings) -> Figures:
    device, forms = settings.device, settings.forms
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
    step = TrainStep.of(recipe, network, device)
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
        kept = tuple(part.clone() for part in next(feed))
    # only now, with the loader stopped: a DataLoader would have got batches ready meanwhile
    resident = itertools.repeat(kept)
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
    clock: StepClock,
    seconds: float,
    steps: int | None,
) -> float:
    """Images a second over so many steps, or over so many seconds."""
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
    """Whether cuDNN tries out its kernels; as it was on leaving."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = benchmark
    try:
        yield
    finally:
        cudnn.benchmark = before
