"""Reads and codes a source's files on several threads, and gives them back in order."""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from fastdata.checksum import crc32c
from fastdata.converters.listing import Listing, Skipped
from fastdata.converters.scan import read_failure
from fastdata.converters.transcode import transcode
from fastdata.errors import DecodeError, SourceError
from fastdata.probe import ImageInfo, probe

# What may be read ahead of the writer: enough files to keep threads busy while the writer syncs a
# shard, few enough bytes for a small machine.
_FILES_PER_WORKER = 64
_WINDOW_BYTES = 128 << 20

# The process's own trouble, not the file's: skipping the file would lose it for nothing.
_FATAL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Loaded(NamedTuple):
    """One file that holds an image.

    Attributes:
        image: The bytes to store.
        crc: Their CRC32C.
        info: What their header says.
        kept: Why it is stored as it is, where it was to be coded anew; empty otherwise.
    """

    image: bytes
    crc: int
    info: ImageInfo
    kept: str


def read_all(
    listing: Listing, order: Iterable[int], workers: int, run_pixels: int | None
) -> Iterator[tuple[int, Loaded | Skipped]]:
    """Read files ahead, within bounds of number and bytes, and yield them in order.

    Args:
        listing: The source.
        order: Places in the listing.
        workers: Number of threads, 1 or more.
        run_pixels: Width of the restart runs that JPEGs are coded in; None keeps them as they are.

    Yields:
        Each place, and the file or why it is left out.

    Raises:
        SourceError: Files cannot be read for a reason that lies in this process.
    """
    pending: deque[tuple[int, Future[Loaded | Skipped]]] = deque()
    ahead = 0
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fastdata-read")
    try:
        for place in order:
            size = int(listing.sizes[place])
            while pending and (
                ahead + size > _WINDOW_BYTES or len(pending) >= _FILES_PER_WORKER * workers
            ):
                done, future = pending.popleft()
                yield done, future.result()
                ahead -= int(listing.sizes[done])
            pending.append((place, pool.submit(load, listing, place, run_pixels)))
            ahead += size
        while pending:
            done, future = pending.popleft()
            yield done, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def load(listing: Listing, place: int, run_pixels: int | None) -> Loaded | Skipped:
    """Read, probe and code one file.

    Raises:
        SourceError: As :func:`read_all`.
    """
    name = os.fsdecode(listing.name(place))
    try:
        data = _read(listing.path(place), int(listing.sizes[place]))
    except OSError as error:
        if error.errno in _FATAL:
            raise SourceError(
                f"{name}: cannot read this file: {error.strerror}; raise the limit (ulimit) or use "
                "fewer workers"
            ) from error
        return Skipped(name, read_failure(error))
    if data is None:
        return Skipped(name, "changed while it was read")
    try:
        info, kept = probe(data), ""
        if info.format == "jpeg" and run_pixels is not None:
            data, kept = transcode(data, run_pixels)
        return Loaded(data, crc32c(data), info, kept)
    except DecodeError as error:
        return Skipped(name, f"no usable image: {error}")


def _read(path: bytes, size: int) -> bytes | None:
    """The file's bytes; None if it is not the one that was listed, or changes meanwhile."""
    # Without NONBLOCK a FIFO that took the file's place would hang the pack.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode) or before.st_size != size:
            return None
        data = file.read(size + 1)
        after = os.fstat(fd)
    if len(data) != size or after.st_mtime_ns != before.st_mtime_ns:
        return None
    return data
