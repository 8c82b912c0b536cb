"""Samples from Python: a torchvision data set, or anything else that can be iterated over."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import Columns, as_image
from fastdata.converters.sources.formats.table import Row, Table, list_table
from fastdata.converters.sources.listing import Unreadable, failure
from fastdata.converters.sources.records import RecordListing
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
    samples = _each(source)
    head = list(islice(samples, 1))
    kind = _kind_of(head[0]) if head else "image"
    if kind != "mapping" and (wanted.columns or wanted.fields):
        raise OptionError(f"{root}: columns and fields need mappings, found {kind}s")
    table = Table(
        columns=tuple(head[0]) if kind == "mapping" else ("image", "label"),
        images=None,
        rows=lambda columns: _rows(root, chain(head, samples), kind, columns),
        classes=lambda _: _class_names(root, source, wanted),
        row_name=_path_of,
        read=_read,
    )
    return list_table(root, (), table, wanted, folder)


def _rows(root: str, samples: Iterable[Any], kind: str, columns: Columns) -> Iterator[Row]:
    """Yield rows of samples that must all be of the first one's kind."""
    for sample in samples:
        if _kind_of(sample) != kind:
            raise SourceError(
                f"{root}: found a {_kind_of(sample)} after a {kind}; give samples of one kind"
            )
        if kind == "mapping":
            if columns.image not in sample:
                raise SourceError(
                    f"{root}: a sample without {columns.image!r}, which the first one has, but "
                    f"with {', '.join(map(str, sample))}"
                )
            yield sample
        else:
            image, label = sample if kind == "pair" else (sample, None)
            yield {"image": image, "label": label}


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
