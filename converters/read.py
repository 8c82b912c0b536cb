"""Reads and codes a source's files on several threads, and gives them back in order."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from fastdata.checksum import crc32c
from fastdata.converters.coding import Coding
from fastdata.converters.listing import Listing, Skipped
from fastdata.errors import DecodeError
from fastdata.probe import EXTENSIONS, ImageInfo, probe
from fastdata.threads import Threads

# What may be read ahead of the writer: enough files to keep threads busy while the writer syncs a
# shard, few enough bytes for a small machine.
_FILES_PER_WORKER = 64
_WINDOW_BYTES = 128 << 20


class Loaded(NamedTuple):
    """One file that holds an image.

    Attributes:
        image: The bytes to store.
        crc: Their CRC32C.
        info: What their header says.
        kept: Why it is stored as it is, where it was to be coded anew; empty otherwise.
        notes: What was done to it by a rule that is worth knowing.
        fields: Further fields of the sample by extension.
    """

    image: bytes
    crc: int
    info: ImageInfo
    kept: str
    notes: tuple[str, ...] = ()
    fields: Mapping[str, bytes] = {}


def read_all(
    listing: Listing,
    order: Iterable[int],
    workers: int,
    coding: Coding,
) -> Iterator[tuple[int, Loaded | Skipped]]:
    """Read files ahead, within bounds of number and bytes, and yield them in order.

    Args:
        listing: The source.
        order: Places in the listing.
        workers: Number of threads, 1 or more.
        coding: How images are to be stored.

    Yields:
        Each place, and the file or why it is left out.

    Raises:
        SourceError: Files cannot be read for a reason that lies in this process.
    """
    pending: deque[tuple[int, int, Future[Loaded | Skipped]]] = deque()
    ahead = 0
    pool = Threads(workers, "fastdata-read")
    try:
        for place in order:
            size = listing.bytes(place)
            while pending and (
                ahead + size > _WINDOW_BYTES or len(pending) >= _FILES_PER_WORKER * workers
            ):
                done, freed, future = pending.popleft()
                yield done, future.result()
                ahead -= freed
            future = pool.submit(load, listing, place, coding)
            pending.append((place, size, future))
            ahead += size
        while pending:
            done, _, future = pending.popleft()
            yield done, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def load(listing: Listing, place: int, coding: Coding) -> Loaded | Skipped:
    """Read, probe and code one file, and read its fields.

    Raises:
        SourceError: As :func:`read_all`.
    """
    name = os.fsdecode(listing.name(place))
    data = listing.read(place)
    if isinstance(data, str):
        return Skipped(name, data)
    try:
        coded = coding.code(data, probe(data))
    except DecodeError as error:
        return Skipped(name, f"no usable image: {error}")
    fields: dict[str, bytes] = {}
    for field, value in listing.read_fields(place).items():
        if isinstance(value, str):
            return Skipped(name, f"no usable field: {field}: {value}")
        fields[field] = value
    if (extension := EXTENSIONS[coded.info.format]) in fields:
        return Skipped(name, f"no usable field: {extension}: the image itself has this extension")
    return Loaded(coded.image, crc32c(coded.image), coded.info, coded.kept, coded.notes, fields)
