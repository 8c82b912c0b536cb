"""Reads and codes a source's files on several threads, and gives them back in order."""

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from fastdata.converters.images.coding import Coding
from fastdata.converters.sources.listing import Listing, Skipped
from fastdata.errors import DecodeError, SourceError
from fastdata.images.probe import EXTENSIONS, ImageInfo
from fastdata.system.checksum import crc32c
from fastdata.system.resources import never
from fastdata.system.threads import Task, Threads

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
        damage: What is wrong with a file that was packed all the same; empty otherwise.
    """

    image: bytes
    crc: int
    info: ImageInfo
    kept: str
    notes: tuple[str, ...] = ()
    fields: Mapping[str, bytes] = {}
    damage: str = ""


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
    pending: deque[tuple[int, int, Task[Loaded | Skipped]]] = deque()
    ahead = 0
    stop = threading.Event()
    pool = Threads(workers, "fastdata-read")
    try:
        with warnings.catch_warnings():
            # of odd metadata; what is wrong with pixels, Pillow raises
            warnings.filterwarnings("ignore", module=r"PIL\.")
            for place in order:
                size = listing.bytes(place)
                while pending and (
                    ahead + size > _WINDOW_BYTES or len(pending) >= _FILES_PER_WORKER * workers
                ):
                    done, freed, future = pending.popleft()
                    yield done, future.result()
                    ahead -= freed
                future = pool.submit(load, listing, place, coding, stop.is_set)
                pending.append((place, size, future))
                ahead += size
            while pending:
                done, _, future = pending.popleft()
                yield done, future.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def load(
    listing: Listing, place: int, coding: Coding, stopped: Callable[[], bool] = never
) -> Loaded | Skipped:
    """Read, probe and code one file, and read its fields.

    Args:
        listing: The source.
        place: Place in the listing.
        coding: How images are to be stored.
        stopped: Whether it is not wanted any more, while it waits for memory.

    Raises:
        SourceError: As :func:`read_all`.
        StoppedError: It is not wanted any more.
    """
    name = os.fsdecode(listing.name(place))
    data = listing.read(place)
    if isinstance(data, str):
        return Skipped(name, data)
    try:
        coded = coding.code_file(data, name, stopped)
    except DecodeError as error:
        return Skipped(name, f"no usable image: {error}")
    except MemoryError:
        raise SourceError(
            f"{name}: there is no memory to code this image; use fewer workers, or a lower "
            "max_pixels"
        ) from None
    fields: dict[str, bytes] = {}
    for field, value in listing.read_fields(place).items():
        if isinstance(value, str):
            return Skipped(name, f"no usable field: {field}: {value}")
        fields[field] = value
    if (extension := EXTENSIONS[coded.info.format]) in fields:
        return Skipped(name, f"no usable field: {extension}: the image itself has this extension")
    crc = crc32c(coded.image)
    return Loaded(coded.image, crc, coded.info, coded.kept, coded.notes, fields, coded.damage)
