"""How fast samples are decoded, cropped and resized, by the number of threads."""

import itertools
import statistics
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing

import numpy as np

from fastdata.batch.decoder import BatchDecoder, PendingBatch, Pixels, Work
from fastdata.batch.source import Source
from fastdata.doctor.results import Speed
from fastdata.errors import StalledError
from fastdata.plan.crop import Crop

_ROUNDS = 3
_AHEAD = 3  # batches at a time, so that no thread waits for the end of one
_DEADLINE = 60.0  # seconds


def thread_counts(cores: int, chosen: int) -> list[int]:
    """Powers of 2, all cores, and the loader's own number."""
    powers = itertools.takewhile(lambda count: count < cores, (2**k for k in itertools.count()))
    return sorted({*powers, cores, chosen})


def decoding_speeds(
    source: Source, crop: Crop, threads: Collection[int], *, seconds: float
) -> tuple[Speed, ...]:
    """Decode with each number of threads in turn, several times over.

    Args:
        source: Samples in memory.
        crop: The loader's crop.
        threads: Numbers of threads.
        seconds: Time for all of it.

    Raises:
        DecodeError: A sample cannot be decoded.
    """
    speeds = interleaved([(source, count) for count in threads], crop, seconds=seconds)
    return tuple(Speed(*pair) for pair in zip(threads, speeds, strict=True))


def interleaved(cases: Sequence[tuple[Source, int]], crop: Crop, *, seconds: float) -> list[float]:
    """Images a second of each (source, threads), the median of rounds that take turns.

    Raises:
        DecodeError: A sample cannot be decoded.
    """
    share = seconds / len(cases) / _ROUNDS
    measured: list[list[float]] = [[] for _ in cases]
    with ExitStack() as stack:
        benches = [
            stack.enter_context(closing(_Bench(source, crop, threads))) for source, threads in cases
        ]
        for _ in range(_ROUNDS):
            for bench, speeds in zip(benches, measured, strict=True):
                speeds.append(bench.speed(share))
    return [statistics.median(speeds) for speeds in measured]


class _Bench:
    """Batches of one source, decoded one after the other by so many threads."""

    def __init__(self, source: Source, crop: Crop, threads: int) -> None:
        self._source = source
        self._batch = max(8, 2 * threads)
        self._decoder = BatchDecoder(source, crop, seed=0, threads=threads, ahead=_AHEAD)
        shape = (self._batch, *crop.shape, 3)
        self._free: list[Pixels] = [np.empty(shape, np.uint8) for _ in range(_AHEAD)]
        self._begun: deque[tuple[PendingBatch, Pixels]] = deque()
        self._batches = itertools.count()

    def speed(self, seconds: float) -> float:
        """Images a second over some seconds, from the end of a first batch."""
        while self._free:
            self._begin()
        self._finish()
        start, images = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            self._begin()
            self._finish()
            images += self._batch
        took = time.perf_counter() - start
        while self._begun:
            self._finish()
        return images / took

    def close(self) -> None:
        for filling, _ in self._begun:
            filling.cancel()
        self._decoder.close()

    def _begin(self) -> None:
        """Start the next batch: the samples in turn, with new crops on each pass."""
        number, out = next(self._batches), self._free.pop()
        places = np.arange(number * self._batch, (number + 1) * self._batch)
        epochs, ids = np.divmod(places, len(self._source))
        work = Work(int(epochs[0]), ids, ids)
        self._begun.append((self._decoder.submit(work, out), out))

    def _finish(self) -> None:
        """Wait for the oldest batch."""
        filling, out = self._begun.popleft()
        self._free.append(out)
        if not filling.wait(_DEADLINE):
            raise StalledError(f"{self._source.path}: a batch is not decoded in {_DEADLINE:.0f} s")
        failures = filling.failures()
        if failures:
            raise failures[min(failures)]
