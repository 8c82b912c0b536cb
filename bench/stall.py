"""Measure how much loading slows down the Python code of the training thread.

The main thread counts in pure Python on one core and takes each batch as soon as it is ready; the
loader decodes with one thread on another core, and plans its batches in the main thread. Counting
and decoding both keep their full speed if the loader never holds the interpreter's lock for long.
The same is measured with OpenCV decoding in a Python thread, as without the native core.

    python bench/stall.py train/            # a packed data set

``counting`` is the rate of counting while loading, relative to counting alone; ``decoding`` the
rate of decoding while counting, relative to a main thread that only waits; ``taking`` the share of
the main thread's time that it spends taking batches, including planning further ones; ``cores``
the rate of counting during decoding without any Python, which shows how much the two cores slow
each other down. All are medians of interleaved rounds; 1.0 is no loss, except for ``taking``. At
least two cores are needed. The last line is JSON.
"""

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from unittest import mock

import numpy as np
from measure import machine, versions

import fastdata as fd
from fastdata import native
from fastdata.batch.decoder import NativeDecoder, PendingBatch
from fastdata.loaders.readers.packed import open_source

_CORE = native.load()  # now: the rounds with OpenCV hide it
_CHUNK = 50_000  # additions between two checks of the loader: about 0.6 ms


def _pending(loader: fd.Loader) -> list[PendingBatch]:
    return [batch.pending for batch in loader._pipeline._begun]  # noqa: SLF001


def _ready(loader: fd.Loader) -> bool:
    """Whether the next batch can be had without waiting."""
    pending = _pending(loader)
    return bool(pending) and pending[0].wait(0)


def add() -> int:
    """Add for a while, and return how often.

    Numbers stay below 128, which Python has ready: nothing is allocated for them.
    """
    number = 0
    for _ in repeat(None, _CHUNK):
        number = (number + 1) & 127
    return _CHUNK


def count(loader: fd.Loader, seconds: float) -> float:
    """Additions a second in pure Python, with checks of the loader, as in `both`."""
    total, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        total += add()
        _ready(loader)
    return total / (time.perf_counter() - start)


def idle_count(loader: fd.Loader, seconds: float) -> float:
    """The same, with a loader that has nothing left to do."""
    while not all(batch.wait(1.0) for batch in _pending(loader)):
        pass
    return count(loader, seconds)


def drain(batches: Iterator[fd.Batch], seconds: float) -> float:
    """Images a second for a consumer that does nothing but wait."""
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        images += len(next(batches).ids)
    return images / (time.perf_counter() - start)


def both(
    loader: fd.Loader, batches: Iterator[fd.Batch], seconds: float
) -> tuple[float, float, float]:
    """Additions and images a second, taking each batch once it is ready, and the time for that."""
    total, images, taking, start = 0, 0, 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        total += add()
        if _ready(loader):  # no wait
            before = time.perf_counter()
            images += len(next(batches).ids)
            taking += time.perf_counter() - before
    passed = time.perf_counter() - start
    return total / passed, images / passed, taking / passed


class Background:
    """Native decoding without Python, in one thread that stays on the core where it started."""

    def __init__(self, path: Path) -> None:
        """Start the thread, with no work yet."""
        source = open_source(path)
        assert _CORE is not None
        self._ids = np.arange(min(len(source), 1024), dtype=np.int64)
        rows = source.rows(self._ids)
        self._decoder = NativeDecoder(_CORE, source, 1)
        self._encoded = self._decoder.encoded(self._ids, rows)
        sizes = np.stack([rows["width"], rows["height"]], axis=1).astype(np.int64)
        crop = fd.RandomResizedCrop(224, flip=0.5)
        self._plan = crop.plan(sizes, self._ids, seed=0, epoch=0)
        self._out = np.empty((len(self._ids), 224, 224, 3), np.uint8)

    def count(self, loader: fd.Loader, seconds: float) -> float:
        """Additions a second during it."""
        unchecked = np.empty(0, np.uint32)
        jobs = [
            self._decoder.fill(
                self._encoded,
                self._ids,
                unchecked,
                self._ids,
                self._plan,
                self._out,
                keep_going=False,
            )
            for _ in range(100)
        ]
        rate = count(loader, seconds)
        for job in jobs:
            job.cancel()
        return rate


def forever(loader: fd.Loader) -> Iterator[fd.Batch]:
    """Batches of epoch after epoch."""
    while True:
        yield from loader


def measure(path: Path, batch_size: int, *, rounds: int, seconds: float) -> dict[str, float]:
    """Shares of their speed that counting and decoding keep together; see the module."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {second})  # the core's threads start now, and stay on this core
    background = Background(path)
    with fd.Loader(path, batch_size, crop=fd.RandomResizedCrop(224, flip=0.5), threads=1) as loader:
        os.sched_setaffinity(0, {first})
        batches = forever(loader)
        drain(batches, 1.0)
        for thread in threading.enumerate():  # Python's decoding threads, where those decode
            if thread.name.startswith("fastdata-decode"):
                os.sched_setaffinity(thread.native_id or 0, {second})
        shares: dict[str, list[float]] = {
            "counting": [], "decoding": [], "taking": [], "cores": []
        }  # fmt: skip
        for _ in range(rounds):
            before, alone = idle_count(loader, seconds), drain(batches, seconds)
            counted, decoded, taking = both(loader, batches, seconds)
            between = idle_count(loader, seconds)
            beside = background.count(loader, seconds)
            after = idle_count(loader, seconds)
            shares["counting"].append(counted / statistics.mean((before, between)))
            shares["decoding"].append(decoded / alone)
            shares["taking"].append(taking)
            shares["cores"].append(beside / statistics.mean((between, after)))
    os.sched_setaffinity(0, {first, second})
    return {name: statistics.median(values) for name, values in shares.items()}


def main() -> None:
    """Measure both ways and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path, help="a packed data set")
    parser.add_argument("--batch-size", type=int, default=64, help="images per batch")
    parser.add_argument("--rounds", type=int, default=15, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds to measure in a round")
    given = parser.parse_args()
    options = {"rounds": given.rounds, "seconds": given.seconds}
    rows = {"native core": measure(given.path, given.batch_size, **options)}
    with mock.patch("fastdata.native.load", return_value=None):
        rows["OpenCV"] = measure(given.path, given.batch_size, **options)
    print(f"{'':12} {'counting':>9} {'decoding':>9} {'taking':>9} {'cores':>9}")
    for name, row in rows.items():
        print(f"{name:12} " + " ".join(f"{share:9.1%}" for share in row.values()))
    print(json.dumps({**rows, "machine": machine(), "versions": versions(("torch", "numpy"))}))


if __name__ == "__main__":
    main()
