"""Samples inside larger files: which bytes of which file, in flat arrays.

About 60 bytes a sample, and its name. Every format that holds many images in a file becomes such a
listing, so that a pack reads it in any order and from many threads, as it does a folder.
"""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastdata.converters.problems import read_range
from fastdata.converters.sources.fields import Texts
from fastdata.converters.sources.listing import CHANGED, Listing, Unreadable, failure
from fastdata.dataset.manifest import sha256_text
from fastdata.errors import SourceError
from fastdata.system.checksum import crc32c

UNCHECKED = -1
DAMAGED = "unreadable: its bytes do not match their CRC32C"

EXTENT = np.dtype([("offset", "<i8"), ("size", "<i8"), ("crc", "<i8"), ("file", "<i4")])
"""One row a sample; the size is -1 if it lacks the field, the CRC32C -1 if none is known."""


class Extent(NamedTuple):
    """A range of bytes in a file.

    Attributes:
        offset: Where it begins.
        size: Its bytes.
        crc: CRC32C of these, or ``UNCHECKED``.
        file: Number of the file.
    """

    offset: int
    size: int
    crc: int = UNCHECKED
    file: int = 0


ABSENT = Extent(0, -1)


class Store(Protocol):
    """What extents are ranges of; used from many threads."""

    def fetch(self, extent: Extent) -> bytes | Unreadable:
        """Read the bytes.

        Raises:
            SourceError: This process has run out of file descriptors or memory.
        """


class Files:
    """Files by their numbers; one that has changed since is not read.

    They are opened for each read: there may be more than a process can hold open.

    Args:
        paths: The files.

    Raises:
        SourceError: One of them is no regular file that can be read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._marks = [_mark(path) for path in self.paths]

    def fetch(self, extent: Extent) -> bytes | Unreadable:
        """See :class:`Store`."""
        path = self.paths[extent.file]
        try:
            # Without NONBLOCK a FIFO that took the file's place would hang the pack.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                data = read_range(fd, extent.offset, extent.size)
                status = os.fstat(fd)
            finally:
                os.close(fd)
        except OSError as error:
            return failure(str(path), error)
        # The whole file's mark: a range may have changed although its size has not.
        same = (status.st_size, status.st_mtime_ns) == self._marks[extent.file]
        return data if same and len(data) == extent.size else Unreadable(CHANGED)


def _mark(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(f"{path}: cannot read this file: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path}: not a regular file")
    return status.st_size, status.st_mtime_ns


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordListing(Listing):
    """The samples of files that hold many.

    Attributes:
        inputs: Paths of the files, or of the folder that holds them; empty for samples in memory.
    """

    inputs: tuple[str, ...]
    _store: Store
    _extents: npt.NDArray[Any]
    _further: Mapping[str, npt.NDArray[Any]]
    _keys: Texts | None

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of the fields that samples may have, sorted."""
        return tuple(sorted({*self._further, *self._columns}))

    def input_paths(self) -> tuple[str, ...]:
        """See :meth:`Listing.input_paths`."""
        return self.inputs

    def key(self, i: int) -> bytes:
        """Name of the sample, different from every other's."""
        found = self._keys.get(i, b"", "") if self._keys else None
        return found if isinstance(found, bytes) else super().key(i)

    def read(self, i: int) -> bytes | Unreadable:
        """See :meth:`Listing.read`."""
        return self._fetch(self._extents[i])

    def read_fields(self, i: int) -> dict[str, bytes | Unreadable]:
        """See :meth:`Listing.read_fields`."""
        found = super().read_fields(i)
        for name, column in self._further.items():
            if column["size"][i] >= 0:
                found[name] = self._fetch(column[i])
        return found

    def take(self, places: npt.NDArray[np.int64]) -> "RecordListing":
        """See :meth:`Listing.take`."""
        taken = super().take(places)
        assert isinstance(taken, RecordListing)
        return replace(
            taken,
            _extents=self._extents[places],
            _further={name: column[places] for name, column in self._further.items()},
            _keys=self._keys.take(places) if self._keys else None,
        )

    def _fetch(self, row: np.void) -> bytes | Unreadable:
        extent = Extent(*row.tolist())
        data = self._store.fetch(extent)
        if isinstance(data, Unreadable) or extent.crc in (UNCHECKED, crc32c(data)):
            return data
        return Unreadable(DAMAGED)

    def size_of(self, i: int) -> int:
        """Bytes of the image and the fields of a sample."""
        further = sum(max(0, int(column["size"][i])) for column in self._further.values())
        return int(self.sizes[i]) + further


def content_fingerprint(
    base: str, keys: Texts | None, columns: Sequence[tuple[str, npt.NDArray[Any]]]
) -> str:
    """Fingerprint of a listing that also covers keys, fields and checksums.

    Args:
        base: The fingerprint of names, labels and sizes.
        keys: Keys that do not follow from names.
        columns: Extents by name; their files and offsets do not count.
    """
    digest = hashlib.sha256(base.encode("ascii"))
    if keys is not None:
        keys.hash_into(digest)
    for name, column in columns:
        digest.update(f"extents {name} ".encode("ascii"))
        for part in ("size", "crc"):
            digest.update(np.ascontiguousarray(column[part]).data)
    return sha256_text(digest.digest())
