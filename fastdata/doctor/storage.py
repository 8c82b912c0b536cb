"""How fast the data set's files are read, from storage and from memory."""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastdata.batch.source import Ids, Source
from fastdata.doctor.places import Files, Place
from fastdata.doctor.results import Reading, Storage
from fastdata.errors import StalledError
from fastdata.system import resources
from fastdata.system.mounts import network_file_system
from fastdata.system.threads import Threads

_WIDE = 4  # times the threads, to tell slow answers from narrow bandwidth
_READS = 8  # samples of each thread in a batch of reads
_COLD = 0.5  # share of the bytes that storage must have given
_DEADLINE = 60.0  # seconds


def measure_storage(
    source: Source, place: Callable[[int], Place], *, threads: int, seconds: float, size: int
) -> tuple[Storage, Ids]:
    """Read samples at random places, no sample twice, cold and then warm.

    Args:
        source: The data set.
        place: Where a sample lies.
        threads: Reads under way at a time.
        seconds: Time for all of it, roughly.
        size: Bytes of all the files.

    Returns:
        The figures, and the samples that were read, which memory now holds.

    Raises:
        StalledError: A batch of reads takes over a minute.
        ShardError: A file cannot be read.
    """
    order = np.random.default_rng(0).permutation(len(source)).astype(np.int64)
    half = -(-len(order) // 2)
    narrow, wide = order[:half], order[half:]  # what one has read must not help the other
    before = _from_storage()
    cold = _read(place, narrow, threads, seconds / 2, cold=True)
    after = _from_storage()
    cold_wide = _read(place, wide if len(wide) else narrow, _WIDE * threads, seconds / 4, cold=True)
    warm = _read(place, narrow[: cold.images], threads, seconds / 4, cold=False)
    share = None
    if before is not None and after is not None:
        read = cold.bytes_per_second / cold.images_per_second * cold.images
        share = min(1.0, (after - before) / read)
    was_cold = share is not None and share >= _COLD
    storage = Storage(
        cold=cold if was_cold else None,
        cold_wide=cold_wide if was_cold else None,
        from_storage=share,
        warm=warm,
        file_system=network_file_system(source.path),
        bytes=size,
        memory=resources.available_memory(),
    )
    return storage, narrow[: cold.images]


def _read(
    place: Callable[[int], Place], order: Ids, threads: int, seconds: float, *, cold: bool
) -> Reading:
    """Read samples in order for some seconds, at least one batch; again where they run out."""
    end = time.perf_counter() + seconds
    images, size, spent, slowest = 0, 0, 0.0, 0.0
    pool = Threads(threads, "fastdata-read")
    files = Files()
    try:
        for start in itertools.cycle(range(0, len(order), _READS * threads)):
            places = [place(sample) for sample in order[start:][: _READS * threads].tolist()]
            if cold:
                for one in places:
                    files.forget(one)
            begin = time.perf_counter()
            size += sum(pool.map(files.read, places, timeout=_DEADLINE))
            now = time.perf_counter()
            images, spent, slowest = (
                images + len(places),
                spent + now - begin,
                max(slowest, now - begin),
            )
            if now > end:
                break
    except TimeoutError as error:
        raise StalledError(
            f"{os.fsdecode(places[0].path)}: {len(places)} samples were not read within "
            f"{_DEADLINE:.0f} s; does the storage answer?"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        files.close()
    return Reading(threads, images, images / spent, size / spent, slowest)


def _from_storage() -> int | None:
    """Bytes that storage has given this process; proc_pid_io(5)."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    values = dict(line.split(": ") for line in text.splitlines())
    return int(values["read_bytes"]) if "read_bytes" in values else None
