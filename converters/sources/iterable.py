"""Samples from Python: a torchvision data set, or anything else that can be iterated over."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import Columns, as_image, as_name
from fastdata.converters.sources.listing import Unreadable, failure
from fastdata.converters.sources.records import RecordListing
from fastdata.converters.sources.spool import Row, spooled
from fastdata.errors import OptionError, SourceError


@runtime_checkable
class Indexed(Protocol):
    """Samples by index from 0 on, as in a torch data set."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, number: int, /) -> Any:
        """A sample."""


Samples = Iterable[Any] | Indexed
"""Each a pair (image, label), a mapping with these two and more, or an image alone."""


def list_samples(source: Samples, wanted: Wanted, folder: Path) -> RecordListing:
    """List samples from Python; each is asked for once, in order, on this thread.

    An image is encoded bytes, the path of a file, a Pillow image, or an array of uint8, (H, W, 3)
    or (H, W); a mapping with ``"bytes"`` is one too. Pixels become NPY files. A label is an
    integer or the name of a class. Names of the numbers are taken from ``source.classes``, or from
    the label in ``source.features``.

    Args:
        source: The samples.
        wanted: Entries of mappings, fields, classes.
        folder: Where a copy of the images is kept until they are packed.

    Raises:
        SourceError: There is no sample, or one is of another kind than the first.
        OptionError: Columns or fields are wanted of pairs.
        DestinationError: There is no room for the copy.
    """
    root = f"samples of {type(source).__name__}"
    rows = _Rows(root, wanted)
    names = _class_names(root, source, wanted)
    return spooled(
        map(rows.row, _each(source)), folder, root, (), names=names, classes=wanted.classes
    )


class _Rows:
    """Makes rows of samples, which must all be of the first one's kind."""

    def __init__(self, root: str, wanted: Wanted) -> None:
        self._root = root
        self._wanted = wanted
        self._columns: Columns | None = None
        self._kind: str | None = None

    def row(self, sample: Any) -> Row:
        """A sample as a row."""
        kind = _kind_of(sample)
        if self._kind is None:
            self._kind = kind
            if kind != "mapping" and (self._wanted.columns or self._wanted.fields):
                raise OptionError(f"{self._root}: columns and fields need mappings, found {kind}s")
        if kind != self._kind:
            raise SourceError(
                f"{self._root}: found a {kind} after a {self._kind}; give samples of one kind"
            )
        if kind == "mapping":
            return self._mapping(sample)
        image, label = sample if kind == "pair" else (sample, None)
        return Row(_path_of(image), _read(image), label, {})

    def _mapping(self, sample: Mapping[str, Any]) -> Row:
        if self._columns is None:
            self._columns = Columns(self._root, sample, self._wanted)
        columns = self._columns
        if columns.image not in sample:
            raise SourceError(
                f"{self._root}: a sample without {columns.image!r}, which the first one has, but "
                f"with {', '.join(map(str, sample))}"
            )
        image = sample[columns.image]
        name = sample.get(columns.key) if columns.key else _path_of(image)
        label = sample.get(columns.label) if columns.label else None
        return Row(as_name(name), _read(image), label, columns.further(sample))


def _each(source: Samples) -> Iterator[Any]:
    # A torch data set without __iter__ need not raise IndexError at its end.
    if not isinstance(source, Iterable):
        return (source[number] for number in range(len(source)))
    return iter(source)


def _kind_of(sample: Any) -> str:
    if isinstance(sample, Mapping):
        return "mapping"
    if isinstance(sample, tuple | list):
        if len(sample) != 2:
            raise SourceError(
                f"a sample of {len(sample)} parts: give pairs (image, label), or mappings where "
                "there is more"
            )
        return "pair"
    return "image"


def _path_of(image: Any) -> str | None:
    """Path of an image that knows its own."""
    if isinstance(image, Mapping):
        image = image.get("path")
    return os.fspath(image) if isinstance(image, str | os.PathLike) else None


def _read(image: Any) -> bytes | Unreadable:
    """Bytes of an image; the caller's own paths are read."""
    if isinstance(image, Mapping) and image.get("bytes") is None:
        image = image.get("path")
    if not isinstance(image, str | os.PathLike):
        return as_image(image)
    try:
        return Path(image).read_bytes()
    except OSError as error:
        return failure(str(image), error)


def _class_names(root: str, source: Samples, wanted: Wanted) -> tuple[str, ...] | None:
    """Names of the classes, if it is a torchvision or Hugging Face data set with names."""
    names = getattr(source, "classes", None)
    features = getattr(source, "features", None)
    if isinstance(features, Mapping):
        label = Columns(root, features, wanted).label
        names = getattr(features[label], "names", None) if label else None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names) or None
