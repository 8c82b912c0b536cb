"""The share of the ceiling: training speed with real data over that without loading."""

import itertools
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing

import torch

from fastdata.batch import Batch
from fastdata.train.meter import now
from fastdata.train.results import Ceiling, Round
from fastdata.train.step import TrainStep

ROUNDS = 5
_LEAD_IN = 3  # untimed steps: more than the two batches that a loader holds ready


def measure_ceiling(
    step: TrainStep,
    loader: Iterable[Batch],
    *,
    seconds: float = 15.0,
    progress: Callable[[int], None] = lambda _: None,
) -> Ceiling:
    """Measure real and resident speed in turn; the training state is as before afterwards.

    Each round makes the same steps twice: on batches from the loader, and on one batch that
    stays on the device. Both begin with untimed steps where steps are short, so that neither
    profits from batches that the loader got ready, nor pays for its getting ready, in the other.

    Args:
        step: Step of a model that is warm already.
        loader: Training batches; it is read again and again.
        seconds: Time to spend, roughly. Slow steps may need more: each run has one at least.
        progress: Called after each of the ``ROUNDS`` rounds with the number done.
    """
    with closing(_endless(loader)) as batches, step.preserved():
        first = next(batches)
        kept = first.images.clone(), first.labels.clone()
        resident = itertools.repeat(kept)
        real = ((batch.images, batch.labels) for batch in batches)
        step.module.train()
        speeds = _speed(step, real, lead_in=1, steps=2), _speed(step, resident, 0, steps=1)
        pair = sum(len(kept[1]) / speed for speed in speeds)  # seconds that a step of each takes
        lead_in, steps = _plan(seconds / ROUNDS / pair)
        measured = []
        for done in range(1, ROUNDS + 1):
            speeds = _speed(step, real, lead_in, steps), _speed(step, resident, lead_in, steps)
            measured.append(Round(*speeds))
            progress(done)
    return Ceiling(
        real_images_per_second=statistics.median(r.real for r in measured),
        resident_images_per_second=statistics.median(r.resident for r in measured),
        share=statistics.median(r.real / r.resident for r in measured),
        rounds=tuple(measured),
        steps=steps,
    )


def _plan(affordable: float) -> tuple[int, int]:
    """Untimed and timed steps of a run that may make ``affordable`` steps."""
    lead_in = min(_LEAD_IN, int(affordable / 4))
    return lead_in, max(1, int(affordable) - lead_in)


def _speed(
    step: TrainStep,
    source: Iterator[tuple[torch.Tensor, torch.Tensor]],
    lead_in: int,
    steps: int,
) -> float:
    """Images a second over ``steps`` steps after ``lead_in`` untimed ones."""
    for images, labels in itertools.islice(source, lead_in):
        step(images, labels, lr=0.0)
    count = 0
    start = now(step.device)
    for images, labels in itertools.islice(source, steps):
        step(images, labels, lr=0.0)
        count += len(labels)
    return count / (now(step.device) - start)


def _endless(loader: Iterable[Batch]) -> Generator[Batch]:
    while True:
        yield from loader
