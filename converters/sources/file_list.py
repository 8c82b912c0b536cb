"""Sources given as a list: CSV or JSON lines that name images, labels and further fields."""

import json
import os
import stat
from array import array
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fastdata.converters.skipped import Skipped, nothing_left
from fastdata.converters.sources.fields import TextsBuilder, check_field_name
from fastdata.converters.sources.listed_labels import Labels
from fastdata.converters.sources.listed_rows import rows
from fastdata.converters.sources.listing import (
    Listing,
    Unreadable,
    clashes_among,
    class_folders,
    examine,
    fingerprint,
    unfit,
)
from fastdata.errors import OptionError, SourceError


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
        for line, values in rows(file):
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


class _Collector:
    """Collects files for a listing."""

    def __init__(self, file: Path, root: Path, classes: tuple[str, ...] | None) -> None:
        self._file = file
        self._root = os.fspath(root)
        self._labels = Labels(file, classes)
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
