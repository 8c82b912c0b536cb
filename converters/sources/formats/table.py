"""Tables of other tools as sources: a reader yields rows, and the rest is the same for all."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fastdata.converters.sources.builder import Builder, Wanted
from fastdata.converters.sources.columns import Columns, as_field, as_image, as_name
from fastdata.converters.sources.listing import Unreadable
from fastdata.converters.sources.records import Extent, Files, RecordListing
from fastdata.converters.sources.spool import Spool
from fastdata.errors import MissingExtraError
from fastdata.system.checksum import crc32c


class Stored(NamedTuple):
    """Bytes that can be read again where they lie."""

    data: bytes
    extent: Extent

    @classmethod
    def at(cls, data: bytes, offset: int, file: int) -> "Stored":
        """Bytes at an offset of a file, which is called by its number."""
        return cls(data, Extent(offset, len(data), crc32c(data), file))


Row = Mapping[str, Any]
"""Values by column; a pack needs those of ``Columns.all()``."""


@dataclass(frozen=True)
class Table:
    """What a reader makes of its files.

    Attributes:
        columns: Names of all columns.
        images: Those that usually hold images; None where only values tell.
        rows: Yields the rows; refuses a column of images that cannot hold any.
        files: Where ``Stored`` values lie; None where rows can be read only once, in order.
        classes: Names of the classes by the column of the labels, where the table has them.
        row_name: Name of a row that has no column for it, by its image.
        read: Bytes of an image, or why there are none.
    """

    columns: tuple[str, ...]
    images: tuple[str, ...] | None
    rows: Callable[[Columns], Iterator[Row]]
    files: Files | None = None
    classes: Callable[[str | None], tuple[str, ...] | None] = lambda _: None
    row_name: Callable[[Any], Any] = lambda _: None
    read: Callable[[Any], bytes | Unreadable] = as_image


def list_table(
    root: str, inputs: tuple[str, ...], table: Table, wanted: Wanted, folder: Path | None = None
) -> RecordListing:
    """List the rows of a table; every row is read once, in order.

    Images and fields that are not ``Stored`` are copied to a temporary file.

    Args:
        root: The source, for errors.
        inputs: See :class:`RecordListing`.
        table: The table.
        wanted: Columns, fields, classes.
        folder: Where the temporary file lies; None for a table whose values are ``Stored``.

    Raises:
        SourceError: There is no column of images, or no image.
        ShardError: A file is damaged.
        DestinationError: There is no room for the copy.
    """
    columns = Columns(root, table.columns, wanted, table.images)
    spool = None if folder is None else Spool(folder)
    store = spool or table.files
    assert store is not None
    builder = Builder(root, inputs, store, table.classes(columns.label))
    for values in table.rows(columns):
        image = values[columns.image]
        name = as_name(values.get(columns.key) if columns.key else table.row_name(image))
        data = image.data if isinstance(image, Stored) else table.read(image)
        if isinstance(data, Unreadable):
            builder.add(name, data, None)
            continue
        further: dict[str, Extent | bytes] = {}
        for field, column in columns.fields.items():
            value = values.get(column)
            if isinstance(value, Stored):
                further[field] = value.extent
            elif value is not None:
                text = as_field(value, f"{root}: column {column!r}")
                further[field] = spool.put(text) if spool else text
        label = values.get(columns.label) if columns.label else None
        if spool is not None:
            extent = spool.put(data)
        else:
            assert isinstance(image, Stored)
            extent = image.extent
        builder.add(name, extent, label, further, head=data)
    return builder.listing(wanted.classes)


def missing_extra(root: str, what: str, package: str) -> MissingExtraError:
    """The error of a format whose package is not installed."""
    return MissingExtraError(
        f"{root}: {what} is read by the package {package}; pip install 'fastdata[sources]'"
    )
