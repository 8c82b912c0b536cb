"""Sources given as a list: CSV or JSON lines that name images, labels and further fields."""

import codecs
import csv
import json
import os
import re
import stat
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastdata.converters.sources.fields import TextsBuilder, check_field_name
from fastdata.converters.sources.listing import (
    Listing,
    Unreadable,
    clashes_among,
    class_folders,
    examine,
    fingerprint,
    nothing_left,
    unfit,
)
from fastdata.dataset.manifest import Skipped
from fastdata.errors import OptionError, SourceError
from fastdata.system.untrusted import read_json

_INTEGER = re.compile(r"-?\d{1,9}")
_MOST_CLASSES = 1_000_000  # if labels are numbers: each gets a name and a count in the manifest
_ADVICE = 'a line must be a JSON object such as {"path": "a.jpg"}'

_Row = tuple[int, Mapping[str, object]]
"""Number of a line, and its values by column; None for an empty cell."""


def list_from(file: Path, root: Path, classes: tuple[str, ...] | None = None) -> Listing:
    """List the images that a file names.

    A CSV file (``.csv``, UTF-8, with a header) or JSON lines (``.jsonl``, ``.ndjson``) has a column
    ``path``, may have a column ``label``, and every further column becomes a field of the sample:
    text as UTF-8, other JSON values as canonical JSON (ASCII, sorted names, no white space). An
    empty cell of a CSV, and a JSON null, is no field.

    A label is the name of a class or, where all labels are integers, its number; an empty one is
    -1. Without ``classes`` the names, sorted, are the classes; numbers go up to the largest one.

    Args:
        file: The list.
        root: The folder that paths are relative to; no path may lead out of it.
        classes: Names of the classes in label order.

    Raises:
        SourceError: The list cannot be read, has an error (the message says in which line), or
            names no file that exists.
    """
    if not root.is_dir():
        raise SourceError(f"{root}: not a folder; give the folder that the paths of {file} are in")
    collector = _Collector(file, root, classes)
    try:
        for line, values in _rows(file):
            collector.add(line, values)
    except OSError as error:
        raise SourceError(f"{file}: cannot read this list: {error.strerror}") from error
    return collector.listing()


def read_classes(file: Path) -> tuple[str, ...]:
    """Read names of classes, one a line, in label order.

    Raises:
        SourceError: The file cannot be read, or a line is empty or repeated.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise SourceError(f"{file}: cannot read the classes: {error.strerror}") from error
    names = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    seen: dict[str, int] = {}
    for line, name in enumerate(names, 1):
        if not name:
            raise SourceError(f"{file}: line {line} is empty; give one class name a line")
        if name in seen:
            raise SourceError(f"{file}: line {line}: {name!r} is already in line {seen[name]}")
        seen[name] = line
    return tuple(names)


def _rows(file: Path) -> Iterator[_Row]:
    """Read a list of files row by row.

    Raises:
        SourceError: It has another format, or a line has an error.
        OSError: It cannot be read.
    """
    kind = file.suffix.lower()
    if kind == ".csv":
        return _csv_rows(file)
    if kind in (".jsonl", ".ndjson"):
        return _json_rows(file)
    raise SourceError(f"{file}: a list must be a .csv file, or JSON lines in a .jsonl file")


def _csv_rows(file: Path) -> Iterator[_Row]:
    # Names that are not UTF-8 are read as lone surrogates, which encode to the same bytes.
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        header: list[str] | None = None
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise SourceError(f"{file}: line {reader.line_num}: {error}") from None
            if not cells:  # an empty line
                continue
            if header is None:
                header = cells
                _check_header(file, header)
            elif len(cells) != len(header):
                raise SourceError(
                    f"{file}: line {reader.line_num}: {len(cells)} values for {len(header)} columns"
                )
            else:
                row = zip(header, cells, strict=True)
                yield reader.line_num, {name: cell or None for name, cell in row}


def _check_header(file: Path, header: list[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            raise SourceError(f"{file}: column {name!r} is repeated")
    if "path" not in header:
        raise SourceError(f"{file}: no column 'path' among {header}; the first line names them")


def _json_rows(file: Path) -> Iterator[_Row]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            row = read_json(text, f"{file}: line {number}", SourceError, _ADVICE)
            if not isinstance(row, dict):
                raise SourceError(f"{file}: line {number}: not an object; {_ADVICE}")
            yield number, row


class _Collector:
    """Collects files for a listing."""

    def __init__(self, file: Path, root: Path, classes: tuple[str, ...] | None) -> None:
        self._file = file
        self._root = os.fspath(root)
        self._labels = _Labels(file, classes)
        self._names = bytearray()
        self._ends = array("q")
        self._sizes = array("q")
        self._hashes = array("q")  # of all names, to find repeated ones
        self._lines = array("q")
        self._columns: dict[str, TextsBuilder] = {}
        self._folders: dict[bytes, array[int]] = {}  # places of their files
        self._skipped: list[Skipped] = []

    def add(self, line: int, values: Mapping[str, object]) -> None:
        """Add a row."""
        name = self._name(line, values.get("path"))
        self._hashes.append(hash(name))
        self._lines.append(line)
        label = self._labels.check(line, values.get("label"))
        fields = {
            column: self._field(line, column, value)
            for column, value in values.items()
            if column not in ("path", "label")
        }
        status = examine(os.path.join(self._root, os.fsdecode(name)))
        if isinstance(status, Unreadable):
            reason: str | None = status.reason
            if reason == "vanished":
                reason = "no such file"
        elif stat.S_ISDIR(status.st_mode):
            reason = "not a regular file: folder"
        else:
            reason = unfit(status)
        if isinstance(status, Unreadable) or reason is not None:
            self._skipped.append(Skipped(os.fsdecode(name), reason or ""))
            return
        self._folders.setdefault(name.rpartition(b"/")[0], array("q")).append(len(self._sizes))
        self._names += name
        self._ends.append(len(self._names))
        self._labels.add(label)
        for column in fields.keys() - self._columns.keys():
            self._columns[column] = TextsBuilder(len(self._sizes))
        for column, builder in self._columns.items():
            builder.add(fields.get(column))
        self._sizes.append(status.st_size)

    def listing(self) -> Listing:
        """The listing of all files."""
        self._refuse_repeated()
        if not self._sizes:
            raise SourceError(nothing_left(self._root, self._skipped))
        classes, labels = self._labels.finish()
        names, ends = bytes(self._names), np.array(self._ends, np.int64)
        sizes = np.array(self._sizes, np.int64)
        columns = {name: self._columns[name].build() for name in sorted(self._columns)}
        tops = {os.fsdecode(folder.partition(b"/")[0]) for folder in self._folders if folder}
        renamed = class_folders(tuple(sorted(tops)))
        return Listing(
            root=self._root,
            classes=classes,
            labels=labels,
            sizes=sizes,
            skipped=tuple(self._skipped),
            fingerprint=fingerprint(classes, names, ends, sizes, labels, columns),
            _names=names,
            _ends=ends,
            _numbers=clashes_among(self._folders.values(), names, ends),
            _renamed={os.fsencode(old): os.fsencode(new) for old, new in renamed.items()},
            _columns=columns,
        )

    def _name(self, line: int, value: object) -> bytes:
        """Normalised path relative to the root."""
        if not isinstance(value, str) or not value:
            raise self._error(line, f"path {value!r} must be the path of an image")
        try:
            name = os.fsencode(value)
        except UnicodeEncodeError:
            raise self._error(line, f"path {value!r} is not a file name") from None
        parts = [part for part in name.split(b"/") if part not in (b"", b".")]
        if name.startswith(b"/") or b".." in parts or b"\0" in name or not parts:
            raise self._error(
                line, f"path {value!r} must be relative to {self._root} and stay within it"
            )
        return b"/".join(parts)

    def _field(self, line: int, column: str, value: object) -> bytes | None:
        if column not in self._columns:
            try:
                check_field_name(column)
            except OptionError as error:
                raise self._error(line, str(error)) from None
        if value is None:
            return None
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")

    def _refuse_repeated(self) -> None:
        hashes = np.array(self._hashes, np.int64)
        order = np.argsort(hashes, kind="stable")
        again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
        if again.size:
            at = again[np.argmin(order[again + 1])]
            first, second = (self._lines[place] for place in order[at : at + 2].tolist())
            raise self._error(
                second,
                f"the same file as line {first}; give one line a file (several texts can be one "
                "JSON list)",
            )

    def _error(self, line: int, text: str) -> SourceError:
        return SourceError(f"{self._file}: line {line}: {text}")


class _Labels:
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
