"""What a source holds, in flat arrays: about 30 bytes a file, and its name."""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.converters.sources.fields import Column, FieldFile
from fastdata.dataset.manifest import Skipped, count_reasons, sha256_text
from fastdata.errors import SourceError

PACKED_DAMAGED = "damaged but packed"
"""The kind of reason that only names a file: with ``damaged="keep"`` it is not left out."""

CHANGED = "changed while it was read"
EMPTY = "empty file"
MAX_BYTES = 2**32 - 1  # of one file: the catalog states lengths in 32 bits, and so does LMDB

# The process's own trouble, not the file's: skipping the file would lose it for nothing.
_FATAL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

# webdataset takes members under such a first folder for its own metadata and drops them silently.
_META = re.compile(r"__[^/]*__", re.DOTALL)


class Unreadable(NamedTuple):
    """Stands in place of bytes that cannot be read.

    Attributes:
        reason: Why, as in :class:`Skipped`.
    """

    reason: str


@dataclass(frozen=True, eq=False)
class Listing:
    """The files of a source.

    Attributes:
        root: The source.
        classes: Names of the class folders in the order of their labels; empty for a flat folder.
        labels: (n,) int32; -1 in a flat folder.
        sizes: (n,) int64, bytes.
        skipped: What was left out.
        fingerprint: Hash of names, sizes, classes and fields, ``"sha256:..."``.
    """

    root: str
    classes: tuple[str, ...]
    labels: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    skipped: tuple[Skipped, ...]
    fingerprint: str
    _names: bytes
    _ends: npt.NDArray[np.int64]
    _numbers: dict[int, int]
    _renamed: dict[bytes, bytes]
    _columns: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of files."""
        return len(self.sizes)

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of the fields that samples may have, sorted."""
        return tuple(self._columns)

    def input_paths(self) -> tuple[str, ...]:
        """Paths that must not hold the destination."""
        return (self.root,)

    def name(self, i: int) -> bytes:
        """Path of a file relative to the source."""
        start = int(self._ends[i - 1]) if i else 0
        return self._names[start : int(self._ends[i])]

    def path(self, i: int) -> bytes:
        """Path of a file as the system opens it."""
        return os.path.join(os.fsencode(self.root), self.name(i))

    def key(self, i: int) -> bytes:
        """Name of the sample, unique in the source: no extension, and no dot in the last part."""
        folder, slash, last = self.name(i).rpartition(b"/")
        if folder:
            top, rest, below = folder.partition(b"/")
            folder = self._renamed.get(top, top) + rest + below
        number = f"-{self._numbers[i]}" if i in self._numbers else ""
        return folder + slash + os.fsencode(stem(os.fsdecode(last)) + number)

    def fields(self, i: int) -> dict[str, bytes | FieldFile]:
        """Further fields of a sample by extension: their bytes, or the files that hold them."""
        found = {}
        for name, column in self._columns.items():
            value = column.get(i, self.path(i), name)
            if value is not None:
                found[name] = value
        return found

    def read(self, i: int) -> bytes | Unreadable:
        """A file's bytes.

        Raises:
            SourceError: This process has run out of file descriptors or memory; so below.
        """
        return read_file(os.fsdecode(self.name(i)), self.path(i), int(self.sizes[i]))

    def read_fields(self, i: int) -> dict[str, bytes | Unreadable]:
        """Bytes of the further fields of a sample by extension."""
        name = os.fsdecode(self.name(i))
        return {
            field: read_file(name, found.path, found.size)
            if isinstance(found, FieldFile)
            else found
            for field, found in self.fields(i).items()
        }

    def size_of(self, i: int) -> int:
        """Bytes of all files of a sample."""
        beside = sum(column.read_bytes(i) for column in self._columns.values())
        return int(self.sizes[i]) + beside

    def take(self, places: npt.NDArray[np.int64]) -> "Listing":
        """Some of the files, with the keys, labels and classes that they have here.

        Args:
            places: (m,) int64 places in this listing.
        """
        names = [self.name(place) for place in places.tolist()]
        # The places say it all, and are cheaper to hash than names and sizes.
        digest = hashlib.sha256(self.fingerprint.encode("ascii"))
        digest.update(places.astype("<i8").tobytes())
        return replace(
            self,
            labels=self.labels[places],
            sizes=self.sizes[places],
            fingerprint=sha256_text(digest.digest()),
            _names=b"".join(names),
            _ends=np.cumsum([len(name) for name in names], dtype=np.int64),
            _numbers={
                new: self._numbers[old]
                for new, old in enumerate(places.tolist())
                if old in self._numbers
            },
            _columns={name: column.take(places) for name, column in self._columns.items()},
        )


def fingerprint(
    classes: tuple[str, ...],
    names: bytes,
    ends: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32] | None = None,
    columns: Mapping[str, Column] | None = None,
) -> str:
    """Hash of what a source holds, ``"sha256:..."``.

    Args:
        classes: Names of the classes.
        names: Paths of all files relative to the source, end to end.
        ends: (n,) end of each within them.
        sizes: (n,) bytes of each file.
        labels: (n,) where they do not follow from paths and classes.
        columns: Further fields by name.
    """
    digest = hashlib.sha256(json.dumps(classes).encode("ascii"))
    for part in (names, ends.astype("<i8").data, sizes.astype("<i8").data):
        digest.update(part)
    if labels is not None:
        digest.update(b"labels")
        digest.update(labels.astype("<i4").data)
    for name, column in (columns or {}).items():
        digest.update(f"field {name} ".encode("ascii"))
        column.hash_into(digest)
    return sha256_text(digest.digest())


def stem(name: str) -> str:
    """The last part of a key: a file's name without its extension, dots replaced.

    webdataset and DALI split a member's name at the first dot of its last part, so a key must have
    none there.
    """
    return os.path.splitext(name)[0].replace(".", "_")


def clashes(names: list[str]) -> dict[int, int]:
    """Numbers that tell apart the files of one folder whose stems are equal.

    The first file of a stem keeps it; the others become stem-2, stem-3 and so on, except where
    another file has that stem.

    Args:
        names: File names in sorted order.

    Returns:
        The number for each place among the names that needs one; mostly empty.
    """
    # Hashes in one array: a dictionary of all stems would take 300 MB for 2 million files.
    hashes = np.fromiter((hash(stem(name)) for name in names), np.int64, len(names))
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():
        return {}
    repeated = np.isin(hashes, ordered[1:][ordered[1:] == ordered[:-1]])
    numbers: dict[int, int] = {}
    last: dict[str, int] = {}
    taken = set(ordered.tolist())
    for place in np.flatnonzero(repeated).tolist():
        text = stem(names[place])
        if text not in last:
            last[text] = 1
            continue
        number = last[text] + 1
        while hash(f"{text}-{number}") in taken:
            number += 1
        last[text] = numbers[place] = number
    return numbers


def clashes_among(
    folders: Iterable[Sequence[int]], names: bytes, ends: npt.NDArray[np.int64]
) -> dict[int, int]:
    """Numbers that tell apart files of several folders; they do not depend on the files' order.

    Args:
        folders: The places of each folder's files.
        names: Paths of all files, end to end.
        ends: (n,) where each path ends.

    Returns:
        The number for each place that needs one; the first of equal names needs none.
    """
    numbers = {}
    for places in folders:
        files = sorted(
            (os.fsdecode(names[ends[i - 1] if i else 0 : ends[i]].rpartition(b"/")[2]), i)
            for i in places
        )
        for place, number in clashes([name for name, _ in files]).items():
            numbers[files[place][1]] = number
    return numbers


def class_folders(names: tuple[str, ...]) -> dict[str, str]:
    """Names of class folders within keys, if they differ from the folders' own.

    A leading ``__`` that webdataset would take for metadata is shortened to one underscore.
    """
    renamed: dict[str, str] = {}
    taken = set(names)
    for name in names:
        if _META.fullmatch(name):
            base = new = "_" + name.lstrip("_")
            number = 2
            while new in taken:
                new = f"{base}-{number}"
                number += 1
            taken.add(new)
            renamed[name] = new
    return renamed


def examine(path: str) -> os.stat_result | Unreadable:
    """Status of what a path leads to."""
    try:
        return os.stat(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and os.path.islink(path):
            return Unreadable("broken symbolic link")
        return Unreadable(read_failure(error))


def unfit(status: os.stat_result) -> str | None:
    """Why a path that is no folder cannot be a file of a data set; ``EMPTY`` may be a field."""
    if stat.S_ISFIFO(status.st_mode):
        return "not a regular file: FIFO"
    if stat.S_ISSOCK(status.st_mode):
        return "not a regular file: socket"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file: device"
    return unfit_size(status.st_size)


def unfit_size(size: int) -> str | None:
    """Why an image cannot have so many bytes."""
    if size == 0:
        return EMPTY
    return "over 4 GiB" if size > MAX_BYTES else None


def read_file(name: str, path: bytes, size: int) -> bytes | Unreadable:
    """A file's bytes, if it has not changed since it was listed.

    Args:
        name: The file, for errors.
        path: The file, as the system opens it.
        size: Its size when it was listed.

    Raises:
        SourceError: This process has run out of file descriptors or memory.
    """
    try:
        # Without NONBLOCK a FIFO that took the file's place would hang the pack.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode) or before.st_size != size:
                return Unreadable(CHANGED)
            data = file.read(size + 1)  # one more tells a file that grew
            after = os.fstat(fd)
    except OSError as error:
        return failure(name, error)
    unchanged = len(data) == size and after.st_mtime_ns == before.st_mtime_ns
    return data if unchanged else Unreadable(CHANGED)


def failure(name: str, error: OSError) -> Unreadable:
    """The result for a file that the system did not read.

    Raises:
        SourceError: This process has run out of file descriptors or memory.
    """
    if error.errno in _FATAL:
        raise SourceError(
            f"{name}: cannot read this file: {error.strerror}; raise the limit (ulimit) or use "
            "fewer workers"
        ) from error
    return Unreadable(read_failure(error))


def read_failure(error: OSError) -> str:
    """Reason for leaving out what the system did not read."""
    if isinstance(error, FileNotFoundError):
        return "vanished"
    if error.errno == errno.ELOOP:
        return "symbolic link loop"
    return f"unreadable: {error.strerror}"


def nothing_left(source: str, skipped: Sequence[Skipped]) -> str:
    """Message for a source without any image to pack."""
    if not skipped:
        return f"{source}: holds no image"
    reasons = ", ".join(f"{count} {reason}" for reason, count in count_reasons(skipped).items())
    return f"{source}: holds no image; left out: {reasons} (first: {skipped[0].name!r})"
