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
# Untimed steps: the three batches that a loader got ready meanwhile, and as many again, which come
# at its own pace. Where loading is what limits, a clock that starts with ready batches flatters it.
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
    """Measure real and resident speed in turn; the training state is as before afterwards.

    Each round makes the same steps on batches from the loader and on one batch that stays on the
    device. With ``spinning`` it makes them a third time: on the resident batch, while another
    thread takes a batch from the loader for each step and throws it away. That costs all that
    loading costs, except waiting for it. Who goes first changes from round to round, and all begin
    with untimed steps where steps are short, so that none profits from batches that the loader
    got ready in another, nor pays for its getting ready.

    Ranks that train together measure together: equally many steps, and their speeds are added up.

    Args:
        step: Step of a model that is warm already.
        loader: Training batches; it is read again and again.
        seconds: Time to spend, roughly. Slow steps may need more: each run has one at least.
        rounds: How many rounds.
        spinning: Measure with the loader spinning, too.
        beside: Entered for the timed steps on real data alone; what it measures is not diluted by
            the others, in which the device is always busy.
        progress: Called after each round with the number done.
        clock: What tells the time; steps on CUDA are waited for before it is read.
    """
    with closing(_endless(loader)) as batches, step.preserved():
        first = next(batches)
        kept = first.images.clone(), first.labels.clone()
        resident = _Feed(itertools.repeat(kept), clock)
        real = _Feed(((batch.images, batch.labels) for batch in batches), clock)

        def spin(lead_in: int, steps: int) -> _Run:
            with _spinning(batches, step.device) as take:
                return _run(step, _Feed(_beside(kept, take), clock), lead_in, steps)

        runs: list[Callable[[int, int], _Run]]
        runs = [partial(_run, step, real, beside=beside), partial(_run, step, resident)]
        if spinning:
            runs.append(spin)
        step.module.train()
        tried = sum(run(1, 2).seconds / 2 for run in runs)  # a step of each
        each = _on_all_ranks(tried, step.device) / ranks.count()
        lead_in, steps = _plan(seconds / rounds / each)
        done: list[list[_Run]] = []
        for number in range(rounds):
            order = [(number + place) % len(runs) for place in range(len(runs))]
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
    next_seconds: float  # of these, how long getting batches took
    thread_seconds: float  # of those, how long this thread computed
    device_wait: float | None  # seconds in which the device had no batch to work on; CUDA alone


class _Feed:
    """Batches for steps, and the time that getting them takes the thread that makes the steps."""

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
    """How long a CUDA device has nothing to do between a step's end and the next batch.

    Measured by events in the stream of the steps, so it is the device's own wait, whatever the host
    does meanwhile. The batch's normalisation lies within: it is some ten microseconds.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []

    def batch_is_there(self) -> None:
        """The stream has all that makes the next batch."""
        if self._events:  # the first batch follows no step
            self._mark()

    def step_is_over(self) -> None:
        """The stream has all of a step."""
        self._mark()

    def _mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)

    def seconds(self) -> float:
        """Sum of the gaps; the device must have got to the last mark."""
        ends, begins = self._events[0::2], self._events[1::2]
        pairs = zip(ends, begins, strict=False)  # no batch follows the last step
        return float(sum(end.elapsed_time(begin) for end, begin in pairs)) / 1000


def _plan(affordable: float) -> tuple[int, int]:
    """Untimed and timed steps of a run that may make ``affordable`` steps."""
    lead_in = min(_LEAD_IN, int(affordable / 4))
    return lead_in, max(1, int(affordable) - lead_in)


def _on_all_ranks(value: float, device: torch.device) -> float:
    """The sum of what each rank has."""
    return float(ranks.add_up(torch.tensor(value, dtype=torch.float64, device=device)))


def _endless(loader: Iterable[Batch]) -> Generator[Batch]:
    while True:
        yield from loader


def _beside(kept: Pair, take: Callable[[], None]) -> Iterator[Pair]:
    """The same batch without end, and ``take`` called before each."""
    for pair in itertools.repeat(kept):
        take()
        yield pair


@contextmanager
def _spinning(batches: Iterator[Batch], device: torch.device) -> Iterator[Callable[[], None]]:
    """A thread that takes a batch and throws it away, each time that what this yields is called.

    Taking a batch for each step keeps the loader as busy as in training: free to run, it would be
    busier than it ever is there, and where it cannot keep up, it never rests in either.

    Raises:
        BaseException: Whatever the loader raised.
    """
    asked, ended = threading.Semaphore(0), threading.Event()
    errors: list[BaseException] = []

    def take_all() -> None:
        on_gpu = device.type == "cuda"
        try:
            # a stream of its own, for the step not to wait for what is thrown away
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
        thread.join()  # for one batch at most, and that has a deadline of its own
    if errors:
        raise errors[0]
