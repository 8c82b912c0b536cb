"""What a source holds, in flat arrays: about 30 bytes a file, and its name."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.converters.sources import keys
from fastdata.converters.sources.fields import Column, FieldFile
from fastdata.converters.sources.files import read_file
from fastdata.dataset.manifest import sha256_text

__all__ = ["FieldFile", "Listing", "Skipped", "count_reasons", "fingerprint"]


PACKED_DAMAGED = "damaged but packed"
"""The kind of reason that only names a file: with ``damaged="keep"`` it is not left out."""


class Skipped(NamedTuple):
    """A file or folder that is left out, or packed although it is damaged.

    Attributes:
        name: Its path relative to the source.
        reason: Why: a fixed text, after which a colon may bring detail.
    """

    name: str
    reason: str

    @property
    def kind(self) -> str:
        """The reason without its detail."""
        return self.reason.partition(":")[0]


def count_reasons(skipped: Iterable[Skipped]) -> dict[str, int]:
    """How often each reason comes, without its detail, sorted by reason."""
    return dict(sorted(Counter(entry.kind for entry in skipped).items()))


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

    def name(self, i: int) -> bytes:
        """Path of a file relative to the source."""
        start = int(self._ends[i - 1]) if i else 0
        return self._names[start : int(self._ends[i])]

    def path(self, i: int) -> bytes:
        """Path of a file as the system opens it."""
        return os.path.join(os.fsencode(self.root), self.name(i))

    def key(self, i: int) -> bytes:
        """Name of the sample: no extension, no dot in the last part, unlike every other's."""
        folder, slash, last = self.name(i).rpartition(b"/")
        if folder:
            top, rest, below = folder.partition(b"/")
            folder = self._renamed.get(top, top) + rest + below
        number = f"-{self._numbers[i]}" if i in self._numbers else ""
        return folder + slash + os.fsencode(keys.stem(os.fsdecode(last)) + number)

    def fields(self, i: int) -> dict[str, bytes | FieldFile]:
        """Further fields of a sample by extension: their bytes, or the files that hold them."""
        found = {}
        for name, column in self._columns.items():
            value = column.get(i, self.path(i), name)
            if value is not None:
                found[name] = value
        return found

    def read(self, i: int) -> "bytes | str":
        """A file's bytes, or why there are none.

        Raises:
            SourceError: It cannot be read for a reason that lies in this process, here and below.
        """
        return read_file(os.fsdecode(self.name(i)), self.path(i), int(self.sizes[i]))

    def read_fields(self, i: int) -> "dict[str, bytes | str]":
        """Further fields of a sample by extension: their bytes, or why there are none."""
        name = os.fsdecode(self.name(i))
        return {
            field: read_file(name, found.path, found.size)
            if isinstance(found, FieldFile)
            else found
            for field, found in self.fields(i).items()
        }

    def bytes(self, i: int) -> int:
        """Bytes of all files of a sample."""
        beside = sum(column.read_bytes(i) for column in self._columns.values())
        return int(self.sizes[i]) + beside

    def take(self, places: npt.NDArray[np.int64]) -> "Listing":
        """Some of the files, with the keys, labels and classes that they have here.

        Args:
            places: (m,) int64 places in this listing.
        """
        names = [self.name(place) for place in places.tolist()]
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
