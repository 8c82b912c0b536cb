"""Further fields of samples, in flat arrays: texts from a list of files, or files beside images."""

import hashlib
import os
import re
from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.errors import OptionError, SourceError

_NAME = re.compile(r"(?!__)[a-z0-9_]+")
_TAKEN = frozenset({"cls", "path", "label"})


class FieldFile(NamedTuple):
    """A file that holds a field.

    Attributes:
        path: Its path as the system opens it.
        size: Its bytes when it was listed.
    """

    path: bytes
    size: int


def check_field_name(name: str) -> None:
    """Refuse what is no extension of a member that webdataset reads as a field of its own.

    Raises:
        OptionError: So it is.
    """
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise OptionError(
            f"field {name!r}: names of fields are of a-z, 0-9 and _, do not start with __, and are "
            f"none of {', '.join(sorted(_TAKEN))}"
        )


@dataclass(frozen=True, eq=False)
class Texts:
    """A field whose values are in memory.

    Attributes:
        text: All values, end to end.
        ends: (n,) int64, end of each value within that.
        given: (n,) bool, False where a sample lacks the field.
    """

    text: bytes
    ends: npt.NDArray[np.int64]
    given: npt.NDArray[np.bool_]

    def get(self, i: int, image: bytes, extension: str) -> bytes | FieldFile | None:  # noqa: ARG002
        """Value of a sample."""
        start = int(self.ends[i - 1]) if i else 0
        return self.text[start : int(self.ends[i])] if self.given[i] else None

    def read_bytes(self, i: int) -> int:  # noqa: ARG002
        """Bytes that reading takes: none, as they are here already."""
        return 0

    def take(self, places: npt.NDArray[np.int64]) -> "Texts":
        """Those of some samples."""
        starts = self.ends - np.diff(self.ends, prepend=0)
        taken = TextsBuilder(0)
        for place in places.tolist():
            value = self.text[starts[place] : self.ends[place]]
            taken.add(value if self.given[place] else None)
        return taken.build()

    def hash_into(self, digest: "hashlib._Hash") -> None:
        """Add everything to a hash."""
        for column in (self.text, self.ends.astype("<i8").data, self.given.data):
            digest.update(column)


class TextsBuilder:
    """Collects the values of a field.

    Args:
        lacking: How many samples came before without the field.
    """

    def __init__(self, lacking: int) -> None:
        self._text = bytearray()
        self._ends = array("q", bytes(8 * lacking))
        self._given = array("b", bytes(lacking))

    def add(self, value: bytes | None) -> None:
        """Add the value of the next sample; None if it lacks the field."""
        self._text += value or b""
        self._ends.append(len(self._text))
        self._given.append(value is not None)

    def build(self) -> Texts:
        """What was collected, as arrays."""
        return Texts(bytes(self._text), np.array(self._ends), np.array(self._given, np.bool_))


@dataclass(frozen=True, eq=False)
class Beside:
    """A field that lies in files beside the images, of the same stem.

    Attributes:
        sizes: (n,) int64, bytes of each file; -1 where a sample lacks it.
    """

    sizes: npt.NDArray[np.int64]

    def get(self, i: int, image: bytes, extension: str) -> bytes | FieldFile | None:
        """The file of a sample, by the path of its image."""
        size = int(self.sizes[i])
        return None if size < 0 else FieldFile(beside(image, extension), size)

    def read_bytes(self, i: int) -> int:
        """Bytes that reading takes."""
        return max(0, int(self.sizes[i]))

    def take(self, places: npt.NDArray[np.int64]) -> "Beside":
        """Those of some samples."""
        return Beside(self.sizes[places])

    def hash_into(self, digest: "hashlib._Hash") -> None:
        """Add everything to a hash."""
        digest.update(self.sizes.astype("<i8").data)


Column = Texts | Beside


def beside(image: bytes, extension: str) -> bytes:
    """Path of the file with the stem of an image and another extension."""
    return os.path.splitext(image)[0] + b"." + extension.encode("ascii")


def encode_text(text: str, where: str) -> bytes:
    """A text as UTF-8, or as the bytes that it stands for (see :func:`os.fsdecode`).

    Raises:
        SourceError: It has half a character, which no file can hold.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SourceError(f"{where}: {text[:80]!r} has half a character; give text") from None
