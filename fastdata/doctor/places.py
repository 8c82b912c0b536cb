"""Where the bytes of samples lie on the disk, reading them, and making the kernel forget them."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fastdata.dataset.lmdb.file import open_file
from fastdata.dataset.lmdb.format import sample_key
from fastdata.errors import ShardError
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.open_source import AnySource, source_class
from fastdata.loaders.readers.tar import TarSource

_ALIGNED = 1 << 21  # the largest folio of a page cache; a part of one cannot be forgotten
_MOST_OPEN = 256  # files


class Place(NamedTuple):
    """A range of a file.

    Attributes:
        path: The file.
        offset: Its first byte.
        size: How many there are.
        alone: Whether the file holds nothing else.
    """

    path: bytes
    offset: int
    size: int
    alone: bool = False


class _Folder(FolderSource):
    """A folder that tells where its files are."""

    def file(self, sample: int) -> Place:
        return Place(self._listing.path(sample), 0, int(self._listing.sizes[sample]), alone=True)


def open_with_places(path: Path) -> tuple[AnySource, Callable[[int], Place]]:
    """A data set, and what tells where one of its samples lies.

    Raises:
        NotADatasetError: There is none.
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

        def member(sample: int) -> Place:
            row = catalog.rows([sample])[0]
            return Place(names[row["shard"]], int(row["offset"]), int(row["length"]))

        return source, member
    file = open_file(source.path)

    def value(sample: int) -> Place:
        found = file.find(sample_key(sample))
        if found is None:  # damaged: reading it says so
            return Place(os.fsencode(source.path), 0, 0)
        return Place(os.fsencode(source.path), found.offset, found.size)

    return source, value


class Files:
    """Reads places; files that hold many samples stay open, as the loader keeps them."""

    def __init__(self) -> None:
        """Start with none open."""
        self._lock = threading.Lock()
        self._open: dict[bytes, int] = {}

    def read(self, place: Place) -> int:
        """Read a place, safe in many threads; returns the number of bytes that were there.

        Raises:
            ShardError: The file cannot be read.
        """
        with self._opened(place) as descriptor:
            return len(os.pread(descriptor, place.size, place.offset))

    def forget(self, place: Place) -> None:
        """Ask the kernel to drop a place, and a little around it, from its page cache.

        It keeps what was not written to the disk yet, and what another program has mapped.

        Raises:
            ShardError: The file cannot be read.
        """
        start = place.offset // _ALIGNED * _ALIGNED
        length = -(-(place.offset + place.size) // _ALIGNED) * _ALIGNED - start
        with self._opened(place) as descriptor:
            os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    @contextmanager
    def _opened(self, place: Place) -> Iterator[int]:
        """A descriptor, which stays open where the file holds more than this place."""
        with self._lock:
            kept = self._open.get(place.path)
        descriptor = kept
        try:
            if descriptor is None:
                descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            yield descriptor
        except OSError as error:
            raise ShardError(f"{os.fsdecode(place.path)}: cannot read: {error.strerror}") from error
        finally:
            if descriptor is not None and descriptor != kept and not self._keep(place, descriptor):
                os.close(descriptor)

    def _keep(self, place: Place, descriptor: int) -> bool:
        with self._lock:
            if place.alone or place.path in self._open or len(self._open) >= _MOST_OPEN:
                return False
            self._open[place.path] = descriptor
            return True
