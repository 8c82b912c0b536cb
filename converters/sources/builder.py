"""Builds a listing of files that hold many samples."""

import os
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.converters.sources.fields import TextsBuilder, check_field_name, encode_text
from fastdata.converters.sources.labels import LabelColumn
from fastdata.converters.sources.listing import (
    Unreadable,
    clashes_among,
    class_folders,
    fingerprint,
    nothing_left,
    unfit_size,
)
from fastdata.converters.sources.records import (
    ABSENT,
    EXTENT,
    Extent,
    RecordListing,
    Store,
    content_fingerprint,
)
from fastdata.dataset.manifest import Skipped
from fastdata.errors import DecodeError, OptionError, SourceError
from fastdata.images.probe import EXTENSIONS, probe

_MOST_FIELDS = 64
_MOST_NAME = 30_000  # bytes: a catalog's row has room for the name and the key made of it
_ENDINGS = (*EXTENSIONS.values(), "jpeg", "tiff")
_OTHER = re.compile(r"[^a-z0-9_]")


@dataclass(frozen=True)
class Wanted:
    """What the user wants of a source.

    Attributes:
        columns: Columns that hold the ``"image"``, the ``"label"`` and the ``"key"``.
        fields: Columns, members or extensions that become fields.
        classes: Names of the classes in label order.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None


class Builder:
    """Collects samples for a listing.

    Args:
        root: The source, as errors name it.
        inputs: See :class:`RecordListing`.
        store: What the extents are ranges of.
        names: Names of the classes, if the source has them.
    """

    def __init__(
        self,
        root: str,
        inputs: tuple[str, ...],
        store: Store,
        names: tuple[str, ...] | None = None,
    ) -> None:
        self._root = root
        self._inputs = inputs
        self._store = store
        self._labels = LabelColumn(root, names)
        self._names = bytearray()
        self._ends = array("q")
        self._folders: dict[bytes, array[int]] = {}  # places of their samples
        self._keys = TextsBuilder(0)
        self._has_keys = False
        self._extents: list[array[int]] = [array("q") for _ in Extent._fields]
        self._further: dict[str, list[array[int]]] = {}
        self._texts: dict[str, TextsBuilder] = {}
        self._skipped: list[Skipped] = []
        self._count = 0

    def add(
        self,
        name: str | bytes | None,
        image: Extent | Unreadable,
        label: object,
        further: Mapping[str, Extent | bytes] | None = None,
        *,
        head: bytes = b"",
        key: bytes | None = None,
    ) -> None:
        """Add the next sample.

        Args:
            name: Its name or path in the source; without one, its number.
            image: Where its image is, or why it is left out.
            label: As :meth:`LabelColumn.add`.
            further: Its fields by name: where they are, or their bytes, which stay in memory.
            head: The image, if a name without an extension should get that of the format.
            key: The sample's key, if it does not follow from the name.
        """
        number, self._count = self._count, self._count + 1
        path = self._path(name, head) or b"%08d" % number
        if not isinstance(image, Unreadable) and (reason := unfit_size(image.size)):
            image = Unreadable(reason)
        if isinstance(image, Unreadable):
            self._skipped.append(Skipped(os.fsdecode(path), image.reason))
            return
        self._labels.add(label)
        self._folders.setdefault(path.rpartition(b"/")[0], array("q")).append(len(self._ends))
        self._names += path
        self._keys.add(key)
        self._has_keys |= key is not None
        self._add_fields(further or {})
        self._ends.append(len(self._names))
        _append(self._extents, image)

    def skip(self, name: str, reason: str) -> None:
        """Leave out something that is not a sample."""
        self._skipped.append(Skipped(name, reason))

    def listing(self, classes: tuple[str, ...] | None) -> RecordListing:
        """The listing of all samples.

        Args:
            classes: Names in label order, if the user gave them.

        Raises:
            SourceError: There are no samples, or a label is none of the classes.
        """
        if not self._ends:
            raise SourceError(nothing_left(self._root, self._skipped))
        classes, labels = self._labels.finish(classes)
        names, ends = bytes(self._names), np.array(self._ends, np.int64)
        texts = self._keys.build() if self._has_keys else None
        extents = _table(self._extents)
        further = {name: _table(self._further[name]) for name in sorted(self._further)}
        tops = {os.fsdecode(folder.partition(b"/")[0]) for folder in self._folders if folder}
        renamed = class_folders(tuple(sorted(tops)))
        sizes = np.ascontiguousarray(extents["size"])
        columns = {name: self._texts[name].build() for name in sorted(self._texts)}
        base = fingerprint(classes, names, ends, sizes, labels, columns)
        return RecordListing(
            root=self._root,
            classes=classes,
            labels=labels,
            sizes=sizes,
            skipped=tuple(self._skipped),
            fingerprint=content_fingerprint(base, texts, [("", extents), *further.items()]),
            _names=names,
            _ends=ends,
            _numbers={} if texts else clashes_among(self._folders.values(), names, ends),
            _renamed={os.fsencode(old): os.fsencode(new) for old, new in renamed.items()},
            _columns=columns,
            inputs=self._inputs,
            _store=self._store,
            _extents=extents,
            _further=further,
            _keys=texts,
        )

    def _path(self, name: str | bytes | None, head: bytes) -> bytes:
        """A name as a safe relative path, without dots and NUL."""
        raw = encode_text(name, self._root) if isinstance(name, str) else name or b""
        parts = raw.replace(b"\0", b"_").split(b"/")
        path = b"/".join(part for part in parts if part not in (b"", b".", b".."))[-_MOST_NAME:]
        if path and head and os.path.splitext(path)[1][1:].lower() not in _BYTE_ENDINGS:
            try:
                path += b"." + EXTENSIONS[probe(head).format].encode("ascii")
            except DecodeError:
                return path
        return path

    def _add_fields(self, further: Mapping[str, Extent | bytes]) -> None:
        for name, value in further.items():
            if isinstance(value, bytes) and name not in self._texts:
                self._check_field(name)
                self._texts[name] = TextsBuilder(len(self._ends))
            elif isinstance(value, Extent) and name not in self._further:
                self._check_field(name)
                self._further[name] = [array("q") for _ in ABSENT]
                for _ in self._ends:
                    _append(self._further[name], ABSENT)
        # Every column grows with every sample, or their rows would no longer match.
        for name, texts in self._texts.items():
            text = further.get(name)
            texts.add(text if isinstance(text, bytes) else None)
        for name, column in self._further.items():
            extent = further.get(name)
            _append(column, extent if isinstance(extent, Extent) else ABSENT)

    def _check_field(self, name: str) -> None:
        try:
            check_field_name(name)
        except OptionError as error:
            raise SourceError(f"{self._root}: {error}") from None
        if len(self._further) + len(self._texts) == _MOST_FIELDS:
            raise SourceError(
                f"{self._root}: more than {_MOST_FIELDS} fields, such as "
                f"{sorted(self._further)[:3]}; choose some with --fields"
            )


def field_name(text: str) -> str:
    """Name of a field for a name in the source, such as ``image/class/text``."""
    name = _OTHER.sub("_", text.lower()).lstrip("_")
    return f"{name}_" if name in ("cls", "path", "label") else name or "_"


_BYTE_ENDINGS = {ending.encode("ascii") for ending in _ENDINGS}


def _append(columns: "list[array[int]]", extent: Extent) -> None:
    for column, value in zip(columns, extent, strict=True):
        column.append(value)


def _table(columns: "list[array[int]]") -> npt.NDArray[Any]:
    table = np.empty(len(columns[0]), EXTENT)
    for name, column in zip(Extent._fields, columns, strict=True):
        table[name] = column
    return table
