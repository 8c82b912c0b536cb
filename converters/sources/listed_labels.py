"""Labels in a list of files: names of classes, or their numbers."""

import re
from array import array
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastdata.errors import SourceError

_INTEGER = re.compile(r"-?\d{1,9}")
_MOST_CLASSES = 1_000_000  # if labels are numbers: each gets a name and a count in the manifest


class Labels:
    """Collects the labels of rows.

    Args:
        file: The list, for errors.
        classes: Names of the classes in label order, if they were given.
    """

    def __init__(self, file: Path, classes: tuple[str, ...] | None) -> None:
        self._file = file
        self._classes = classes
        self._codes: dict[str, int] = {}  # by text, in the order of appearance
        self._lines: list[int] = []  # where each text came first
        self._numbers: dict[str, int] = {}  # line of the first label that JSON gives as a number
        self._rows = array("i")

    def check(self, line: int, value: object) -> int:
        """Check the label of a row, and return its code for :meth:`add`.

        Raises:
            SourceError: It cannot be a label.
        """
        if value is None or value == "":
            return -1
        if type(value) is int:
            text = str(value)
            self._numbers.setdefault(text, line)
        elif isinstance(value, str):
            text = value
        else:
            raise SourceError(
                f"{self._file}: line {line}: label {value!r} must be the name of a class or an "
                "integer"
            )
        if text not in self._codes:
            self._codes[text] = len(self._lines)
            self._lines.append(line)
        return self._codes[text]

    def add(self, code: int) -> None:
        """Add the next sample."""
        self._rows.append(code)

    def finish(self) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
        """Names of the classes, and the label of each sample, (n,) int32.

        Raises:
            SourceError: A label is none of the classes, or names and numbers are mixed.
        """
        classes = self._classes
        if classes is not None:
            names = {name: label for label, name in enumerate(classes)}
            by_code = [self._given(text, names) for text in self._codes]
        elif self._codes and all(map(_INTEGER.fullmatch, self._codes)):
            by_code = [self._number(text, _MOST_CLASSES) for text in self._codes]
            classes = tuple(map(str, range(max(by_code) + 1)))
        else:
            self._refuse_numbers()
            classes = tuple(sorted(self._codes))
            names = {name: label for label, name in enumerate(classes)}
            by_code = [names[text] for text in self._codes]
        table = np.array([*by_code, -1], np.int32)  # the last one is that of code -1
        return classes, table[np.array(self._rows, np.int64)]

    def _given(self, text: str, names: dict[str, int]) -> int:
        if text in names and text not in self._numbers:
            return names[text]
        if _INTEGER.fullmatch(text):
            return self._number(text, len(names))
        raise self._error(text, f"is none of the {len(names)} classes that were given")

    def _number(self, text: str, end: int) -> int:
        if not -1 <= int(text) < end:
            raise self._error(text, f"must be from 0 to {end - 1}, or -1 for none")
        return int(text)

    def _refuse_numbers(self) -> None:
        if self._numbers:
            text, line = next(iter(self._numbers.items()))
            raise SourceError(
                f"{self._file}: line {line}: label {text} is a number, others are names or larger "
                "than nine digits; use one kind"
            )

    def _error(self, text: str, rule: str) -> SourceError:
        line = self._lines[self._codes[text]]
        return SourceError(f"{self._file}: line {line}: label {text!r} {rule}")
