"""What a source holds, in flat arrays: about 30 bytes a file, and its name."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.converters import keys


class Skipped(NamedTuple):
    """A file or folder that is left out.

    Attributes:
        name: Its path relative to the source.
        reason: Why: a fixed text, after which a colon may bring detail.
    """

    name: str
    reason: str


def count_reasons(skipped: Iterable[Skipped]) -> dict[str, int]:
    """How often each reason comes, without its detail, sorted by reason."""
    return dict(sorted(Counter(entry.reason.partition(":")[0] for entry in skipped).items()))


@dataclass(frozen=True, eq=False)
class Listing:
    """The files of a source.

    Attributes:
        root: The source.
        classes: Names of the class folders in the order of their labels; empty for a flat folder.
        labels: (n,) int32; -1 in a flat folder.
        sizes: (n,) int64, bytes.
        skipped: What was left out.
        fingerprint: Hash of names, sizes and classes, ``"sha256:..."``.
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

    def __len__(self) -> int:
        """Number of files."""
        return len(self.sizes)

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
