"""How fast the data set's files are read, from storage and from memory."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastdata.batch.source import Ids, Source
from fastdata.bench.page_cache import from_storage
from fastdata.dataset.lmdb.file import open_file
from fastdata.dataset.lmdb.format import sample_key
from fastdata.doctor.results import Reading, Storage
from fastdata.errors import ShardError, StalledError
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.packed import AnySource, TarSource, source_class
from fastdata.system import resources
from fastdata.system.mounts import network_file_system
from fastdata.system.threads import Threads

_WIDE = 4  # times the threads, to tell slow answers from narrow bandwidth
_READS = 8  # samples of each thread in a batch of reads
_COLD = 0.5  # share of the bytes that must come from storage in a cold reading
_DEADLINE = 60.0  # seconds
_ALIGNED = 1 << 21  # the largest folio of a page cache, which can only be evicted as a whole
_MOST_OPEN = 256  # files


class FileRange(NamedTuple):
    """A range of a file.

    Attributes:
        path: The file.
        offset: Position of its first byte.
        size: Number of bytes.
        alone: Whether the file holds nothing else.
    """

    path: bytes
    offset: int
    size: int
    alone: bool = False


Locate = Callable[[int], FileRange]
"""From a sample to where it is stored."""


def measure_storage(
    source: Source, locate: Locate, *, threads: int, seconds: float, size: int
) -> tuple[Storage, Ids]:
    """Read random samples, none twice, cold and then warm.

    Args:
        source: The data set.
        locate: Returns where a sample is stored.
        threads: Concurrent reads.
        seconds: Time for all of it, roughly.
        size: Bytes of all the files.

    Returns:
        The figures, and the samples that were read, which are now in memory.

    Raises:
        StalledError: A batch of reads takes over a minute.
        ShardError: A file cannot be read.
    """
    order = np.random.default_rng(0).permutation(len(source)).astype(np.int64)
    half = -(-len(order) // 2)
    narrow, wide = order[:half], order[half:]  # apart, or the second would find a warm cache
    before = from_storage()
    cold = _read(locate, narrow, threads, seconds / 2, cold=True)
    after = from_storage()
    cold_wide = _read(
        locate, wide if len(wide) else narrow, _WIDE * threads, seconds / 4, cold=True
    )
    warm = _read(locate, narrow[: cold.images], threads, seconds / 4, cold=False)
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


def _read(locate: Locate, order: Ids, threads: int, seconds: float, *, cold: bool) -> Reading:
    """Read samples in this order for some seconds, at least one batch; wrap around at the end."""
    end = time.perf_counter() + seconds
    images, size, spent, slowest = 0, 0, 0.0, 0.0
    pool = Threads(threads, "fastdata-read")
    files = Files()
    try:
        for start in itertools.cycle(range(0, len(order), _READS * threads)):
            ranges = [locate(sample) for sample in order[start:][: _READS * threads].tolist()]
            if cold:  # batch by batch, as read-ahead may have cached what comes next
                for one in ranges:
                    files.evict(one)
            begin = time.perf_counter()
            size += sum(pool.map(files.read, ranges, timeout=_DEADLINE))
            now = time.perf_counter()
            images, spent, slowest = (
                images + len(ranges),
                spent + now - begin,
                max(slowest, now - begin),
            )
            if now > end:
                break
    except TimeoutError as error:
        raise StalledError(
            f"{os.fsdecode(ranges[0].path)}: {len(ranges)} samples were not read within "
            f"{_DEADLINE:.0f} s; check that the storage responds"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        files.close()
    return Reading(threads, images, images / spent, size / spent, slowest)


class _Folder(FolderSource):
    """A folder whose files can be located."""

    def file(self, sample: int) -> FileRange:
        return FileRange(
            self._listing.path(sample), 0, int(self._listing.sizes[sample]), alone=True
        )


def open_located(path: Path) -> tuple[AnySource, Locate]:
    """Open a data set, with a function that locates its samples.

    Raises:
        NotADatasetError: There is no data set at ``path``.
        CorruptError: It is damaged.
    """
    kind = source_class(path)
    if kind is FolderSource:
        folder = _Folder(path)
        return folder, folder.file
    source = kind(path)
    assert not isinstance(source, FolderSource)
    catalog = source.catalog
    if isinstance(source, TarSource):
        names = [os.fsencode(source.path / shard.name) for shard in source.manifest.shards]

        def member(sample: int) -> FileRange:
            row = catalog.rows([sample])[0]
            return FileRange(names[row["shard"]], int(row["offset"]), int(row["length"]))

        return source, member
    file = open_file(source.path)

    def value(sample: int) -> FileRange:
        found = file.find(sample_key(sample))
        if found is None:  # damaged, which shows when the loader reads it
            return FileRange(os.fsencode(source.path), 0, 0)
        return FileRange(os.fsencode(source.path), found.offset, found.size)

    return source, value


class Files:
    """Reads ranges of files; files with many samples stay open, as in the loader."""

    def __init__(self) -> None:
        """Open no file yet."""
        self._lock = threading.Lock()
        self._open: dict[bytes, int] = {}

    def read(self, where: FileRange) -> int:
        """Read a range and return the number of bytes; safe in many threads.

        Raises:
            ShardError: The file cannot be read.
        """
        with self._opened(where) as descriptor:
            return len(os.pread(descriptor, where.size, where.offset))

    def evict(self, where: FileRange) -> None:
        """Ask the kernel to drop a range, and a little around it, from its page cache.

        It keeps dirty pages, and those that another program has mapped.

        Raises:
            ShardError: The file cannot be read.
        """
        start = where.offset // _ALIGNED * _ALIGNED
        length = -(-(where.offset + where.size) // _ALIGNED) * _ALIGNED - start
        with self._opened(where) as descriptor:
            os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    @contextmanager
    def _opened(self, where: FileRange) -> Iterator[int]:
        """A descriptor, which stays open if the file holds more than this range."""
        with self._lock:
            opened = self._open.get(where.path)
        descriptor = opened
        try:
            if descriptor is None:
                descriptor = os.open(where.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            yield descriptor
        except OSError as error:
            raise ShardError(f"{os.fsdecode(where.path)}: cannot read: {error.strerror}") from error
        finally:
            if (
                descriptor is not None
                and descriptor != opened
                and not self._keep_open(where, descriptor)
            ):
                os.close(descriptor)

    def _keep_open(self, where: FileRange, descriptor: int) -> bool:
        with self._lock:  # another thread may have opened the same file meanwhile
            if where.alone or where.path in self._open or len(self._open) >= _MOST_OPEN:
                return False
            self._open[where.path] = descriptor
            return True
