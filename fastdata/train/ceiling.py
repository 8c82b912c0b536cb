"""The share of the ceiling: training speed with real data over that without loading."""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import torch

from fastdata.batch.batch import Batch
from fastdata.system.threads import start
from fastdata.train import ranks
from fastdata.train.meter import Clock, now
from fastdata.train.results import Ceiling, Round
from fastdata.train.step import TrainStep

ROUNDS = 5
# Untimed steps: on the three batches that a loader prepared in the meantime, and three more at its
# own pace. Where loading is the bottleneck, timing batches that were ready would flatter it.
_LEAD_IN = 6

Pair = tuple[torch.Tensor, torch.Tensor]


def measure_ceiling(
    step: TrainStep,
    loader: Iterable[Batch],
    *,
    seconds: float = 15.0,
    rounds: int = ROUNDS,
    spinning: bool = False,
    beside: AbstractContextManager[object] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    clock: Clock = time,
) -> Ceiling:
    """Measure real and resident speed in turns, then restore the training state.

    Each round makes the same steps on batches from the loader and on one batch that stays on the
    device. With ``spinning`` it makes them a third time: on the resident batch, while another
    thread takes a batch from the loader for each step and discards it. That costs all that
    loading costs, except waiting for it. The order changes from round to round, and where steps are
    short each run starts with untimed ones, so that none profits from batches that the loader
    prepared during another.

    Ranks measure together: equally many steps, and their speeds are added up.

    Args:
        step: Step of a model that is warmed up.
        loader: Training batches; it is iterated endlessly.
        seconds: Time to spend, roughly. Slow steps may need more: each run has one at least.
        rounds: Number of rounds.
        spinning: Measure with the loader spinning, too.
        beside: Entered during the timed steps on real data only, to measure the device there.
        progress: Called after each round with the number done.
        clock: What tells the time; steps on CUDA are waited for before it is read.
    """
    with closing(_endless(loader)) as batches, step.preserved():
        # Cloned: the batch itself would keep one of the loader's buffers.
        first = next(batches)
        fixed = first.images.clone(), first.labels.clone()
        resident = _Feed(itertools.repeat(fixed), clock)
        real = _Feed(((batch.images, batch.labels) for batch in batches), clock)

        def spin(lead_in: int, steps: int) -> _Run:
            with _spinning(batches, step.device) as take:
                return _run(step, _Feed(_taking(fixed, take), clock), lead_in, steps)

        runs: list[Callable[[int, int], _Run]]
        runs = [partial(_run, step, real, beside=beside), partial(_run, step, resident)]
        if spinning:
            runs.append(spin)
        step.module.train()
        # Ranks must make equally many steps, or one would wait for another in vain.
        tried = sum(run(1, 2).seconds / 2 for run in runs)  # one step of each kind
        each = _on_all_ranks(tried, step.device) / ranks.world_size()
        lead_in, steps = _plan(seconds / rounds / each)
        done: list[list[_Run]] = []
        for number in range(rounds):
            order = [(number + turn) % len(runs) for turn in range(len(runs))]
            found = {which: runs[which](lead_in, steps) for which in order}
            done.append([found[which] for which in range(len(runs))])
            progress(number + 1)
        measured = tuple(
            Round(*(_on_all_ranks(run.images / run.seconds, step.device) for run in row))
            for row in done
        )
    loaded = [row[0] for row in done]
    spun = [r.spinning for r in measured if r.spinning is not None]
    waits = [run.device_wait / run.seconds for run in loaded if run.device_wait is not None]
    return Ceiling(
        real_images_per_second=statistics.median(r.real for r in measured),
        resident_images_per_second=statistics.median(r.resident for r in measured),
        share=statistics.median(r.real / r.resident for r in measured),
        rounds=measured,
        steps=steps,
        spinning_images_per_second=statistics.median(spun) if spun else None,
        spinning_share=statistics.median(r.spinning / r.resident for r in measured if r.spinning)
        if spun
        else None,
        loader_share=statistics.median(run.thread_seconds / run.seconds for run in loaded),
        wait_share=statistics.median(run.next_seconds / run.seconds for run in loaded),
        device_wait_share=statistics.median(waits) if waits else None,
    )


class _Run(NamedTuple):
    """A few timed steps of this rank."""

    images: int
    seconds: float
    next_seconds: float  # of these, inside the loader's next()
    thread_seconds: float  # CPU time of this thread in there
    device_wait: float | None  # seconds in which the device had no batch to work on; CUDA only


class _Feed:
    """Batches for steps; measures what getting them costs the thread that makes the steps."""

    def __init__(self, pairs: Iterator[Pair], clock: Clock) -> None:
        self._pairs = pairs
        self.clock = clock
        self.seconds = self.thread_seconds = 0.0

    def __iter__(self) -> Iterator[Pair]:
        return self

    def __next__(self) -> Pair:
        began, cpu = self.clock.perf_counter(), self.clock.thread_time()
        pair = next(self._pairs)
        self.thread_seconds += self.clock.thread_time() - cpu
        self.seconds += self.clock.perf_counter() - began
        return pair


def _run(
    step: TrainStep,
    feed: _Feed,
    lead_in: int,
    steps: int,
    *,
    beside: AbstractContextManager[object] | None = None,
) -> _Run:
    """Make ``steps`` steps after ``lead_in`` untimed ones."""
    for images, labels in itertools.islice(feed, lead_in):
        step(images, labels, lr=0.0)
    feed.seconds = feed.thread_seconds = 0.0
    count = 0
    gaps = _Gaps(step.device) if step.device.type == "cuda" else None
    with beside or nullcontext():
        began = now(step.device, feed.clock)
        for images, labels in itertools.islice(feed, steps):
            if gaps is not None:
                gaps.batch_is_there()
            step(images, labels, lr=0.0)
            if gaps is not None:
                gaps.step_is_over()
            count += len(labels)
        seconds = now(step.device, feed.clock) - began
    waited = None if gaps is None else gaps.seconds()
    return _Run(count, seconds, feed.seconds, feed.thread_seconds, waited)


class _Gaps:
    """Time in which a CUDA device is idle between a step's end and the next batch.

    Events in the stream of the steps measure the device's own wait, whatever the host does in the
    meantime. It includes the batch's normalisation, some ten microseconds.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []

    def batch_is_there(self) -> None:
        """Call when the next batch was queued in the stream."""
        if self._events:  # the first batch follows no step
            self._mark()

    def step_is_over(self) -> None:
        """Call when a step was queued in the stream."""
        self._mark()

    def _mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)

    def seconds(self) -> float:
        """Sum of the gaps; the device must have reached the last event."""
        ends, begins = self._events[0::2], self._events[1::2]
        pairs = zip(ends, begins, strict=False)  # no batch follows the last step
        return float(sum(end.elapsed_time(begin) for end, begin in pairs)) / 1000


def _plan(affordable: float) -> tuple[int, int]:
    """Untimed and timed steps of a run with ``affordable`` steps in all."""
    lead_in = min(_LEAD_IN, int(affordable / 4))
    return lead_in, max(1, int(affordable) - lead_in)


def _on_all_ranks(value: float, device: torch.device) -> float:
    """The sum over all ranks."""
    return float(ranks.all_sum(torch.tensor(value, dtype=torch.float64, device=device)))


def _endless(loader: Iterable[Batch]) -> Generator[Batch]:
    while True:
        yield from loader


def _taking(fixed: Pair, take: Callable[[], None]) -> Iterator[Pair]:
    """The same batch again and again, each time after calling ``take``."""
    for pair in itertools.repeat(fixed):
        take()
        yield pair


@contextmanager
def _spinning(batches: Iterator[Batch], device: torch.device) -> Iterator[Callable[[], None]]:
    """A thread that takes a batch and discards it, each time the yielded function is called.

    One batch per step keeps the loader exactly as busy as in training; a thread that ran freely
    would keep it busier.

    Raises:
        BaseException: Whatever the loader raised.
    """
    asked, ended = threading.Semaphore(0), threading.Event()
    errors: list[BaseException] = []

    def take_all() -> None:
        on_gpu = device.type == "cuda"
        try:
            # a stream of its own, so that the step does not wait for discarded batches
            with torch.cuda.stream(torch.cuda.Stream(device)) if on_gpu else nullcontext():
                while asked.acquire() and not ended.is_set():
                    next(batches)
        except BaseException as error:  # noqa: BLE001  # raised below, in the thread that asked
            errors.append(error)

    thread = threading.Thread(target=take_all, name="fastdata-spin", daemon=True)
    start(thread)
    try:
        yield asked.release
    finally:
        ended.set()
        asked.release()
        thread.join()  # waits for one batch at most, which has a deadline of its own
    if errors:
        raise errors[0]
