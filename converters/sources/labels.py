"""Labels of samples: numbers, or names of classes."""

import re
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.converters.sources.fields import encode_text
from fastdata.errors import SourceError

_INTEGER = re.compile(r"\s*-?\d{1,9}\s*")
_MOST_CLASSES = 1_000_000  # if labels are numbers: each gets a name and a count in the manifest


class LabelColumn:
    """Collects the labels of samples.

    Args:
        where: The source, for errors.
        names: Names of the classes that numbers stand for, if the source has them.
    """

    def __init__(self, where: str, names: tuple[str, ...] | None = None) -> None:
        self._where = where
        for name in names or ():
            encode_text(name, where)
        self._names = names
        # What a label means is known only once all are: a name may look like a number.
        self._codes: dict[int | str, int] = {}  # by value, in the order of appearance
        self._rows = array("i")

    def add(self, value: Any) -> None:
        """Add the label of the next sample.

        Args:
            value: An integer, the name of a class, or None; or an array of one of these.

        Raises:
            SourceError: It is something else.
        """
        if isinstance(value, np.ndarray | list | tuple) and np.size(value) == 1:
            value = np.asarray(value).reshape(-1)[0]
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or (isinstance(value, str) and not value.strip()):
            self._rows.append(-1)
        elif isinstance(value, int | str) and not isinstance(value, bool):
            if isinstance(value, str):
                encode_text(value, self._where)
            self._rows.append(self._codes.setdefault(value, len(self._codes)))
        else:
            raise SourceError(
                f"{self._where}: label {str(value)[:80]!r} of sample {len(self._rows)} must be an "
                "integer or the name of a class; choose another column for the label"
            )

    def finish(
        self, classes: tuple[str, ...] | None
    ) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
        """Names of the classes, and the label of each sample, (n,) int32; -1 if it has none.

        Args:
            classes: Names in label order, if the user gave them.

        Raises:
            SourceError: A label is none of the classes, or names and numbers are mixed.
        """
        numbers = [_number(value) for value in self._codes]
        texts = list(map(str, self._codes))
        named = self._names if self._names is not None else classes
        if None not in numbers and classes is None:
            end = _MOST_CLASSES if named is None else len(named)
            by_code = [self._within(number or 0, end) for number in numbers]
            classes = named or tuple(map(str, range(max(by_code, default=-1) + 1)))
        else:
            if None in numbers and any(isinstance(value, int) for value in self._codes):
                raise self._error("some labels are numbers, others names; use one kind")
            if classes is None:
                classes = named or tuple(sorted(texts))
            places = {name: place for place, name in enumerate(classes)}
            by_code = [
                self._place(text, number, places, named)
                for text, number in zip(texts, numbers, strict=True)
            ]
        table = np.array([*by_code, -1], np.int32)  # the last one is that of code -1
        return classes, table[np.array(self._rows, np.int64)]

    def _place(
        self, text: str, number: int | None, places: dict[str, int], named: tuple[str, ...] | None
    ) -> int:
        """Label of a class by its name, or by the number that stands for its name."""
        if number is not None and text not in places:
            number = self._within(number, len(named or places))
            text = named[number] if named and number >= 0 else text
        if number == -1:
            return -1
        if text not in places:
            raise self._error(f"label {text!r} is none of the {len(places)} classes")
        return places[text]

    def _within(self, number: int, end: int) -> int:
        if not -1 <= number < end:
            raise self._error(f"label {number} must be from 0 to {end - 1}, or -1 for none")
        return number

    def _error(self, text: str) -> SourceError:
        return SourceError(f"{self._where}: {text}")


def _number(value: int | str) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if _INTEGER.fullmatch(value) else None
