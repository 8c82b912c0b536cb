"""What each byte of a shard must be, by the catalog: headers exactly, content by its CRC32C."""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from fastdata.converters.tar.shards import (
    END,
    index_file,
    index_line,
    member_header,
    padding,
)
from fastdata.dataset.catalog.format import ABSENT, FORMAT_MASK
from fastdata.dataset.catalog.reader import Catalog
from fastdata.errors import CatalogError
from fastdata.images.probe import EXTENSIONS, FORMATS
from fastdata.system.checksum import crc32c

_ROWS = 1024  # looked up at once


class Content(NamedTuple):
    """Content of a member, as the catalog describes it.

    Attributes:
        extension: Of the member.
        field: Name of the field; None for the image.
        offset: Within the shard.
        size: In bytes.
        crc: CRC32C.
    """

    extension: str
    field: str | None
    offset: int
    size: int
    crc: int

    def matches(self, data: bytes) -> bool:
        """Whether these are the bytes."""
        return len(data) == self.size and crc32c(data) == self.crc


class Entry(NamedTuple):
    """A sample as the catalog describes it.

    Attributes:
        number: Its id.
        key: Its key.
        name: Its original path.
        label: Its label.
        contents: The image, then the fields that it has, in the order of their offsets.
    """

    number: int
    key: str
    name: str
    label: int
    contents: tuple[Content, ...]


class Piece(NamedTuple):
    """Consecutive bytes of a shard, known exactly or by their checksum.

    Attributes:
        offset: Within the shard.
        known: The bytes, or None.
        content: Their description if ``known`` is None, else None.
    """

    offset: int
    known: bytes | None
    content: Content | None


def entries(catalog: Catalog, first: int, count: int) -> Iterator[Entry]:
    """Yield ``count`` samples from the id ``first`` on.

    Raises:
        CatalogError: The catalog is damaged.
    """
    # A lookup reads blocks of the catalog, so many samples at once cost little more than one.
    for start in range(first, first + count, _ROWS):
        ids = np.arange(start, min(start + _ROWS, first + count))
        rows = catalog.rows(ids)
        texts = zip(catalog.keys(ids), catalog.names(ids), strict=True)
        fields = {name: catalog.field(name, ids).tolist() for name in catalog.field_names}
        for place, ((key, name), row) in enumerate(zip(texts, rows.tolist(), strict=True)):
            offset, length, crc, _, label, _, _, flags, _ = row
            code = flags & FORMAT_MASK
            if code >= len(FORMATS):
                raise CatalogError(f"sample {key!r}: unknown format {code}")
            image = Content(EXTENSIONS.get(FORMATS[code], ""), None, offset, length, crc)
            further = sorted(
                (Content(field, field, *column[place]) for field, column in fields.items()),
                key=lambda content: content.offset,
            )
            present = tuple(content for content in further if content.offset != ABSENT)
            yield Entry(start + place, key, name, label, (image, *present))


def pieces(entry: Entry, start: int) -> list[Piece] | None:
    """All bytes of a sample in a shard that fastdata wrote, from the first header on.

    Args:
        entry: The sample.
        start: Offset of its first header.

    Returns:
        The pieces end to end; None if the shard has another layout.
    """
    image, *further = entry.contents
    label = b"%d" % entry.label
    members: list[tuple[str, int, bytes | Content]] = [
        (image.extension, image.size, image),
        ("cls", len(label), label),
        *((content.extension, content.size, content) for content in further),
    ]
    key = os.fsencode(entry.key)
    found: list[Piece] = []
    at = start
    for extension, size, what in members:
        header = member_header(key + b"." + os.fsencode(extension), size)
        found.append(Piece(at, header, None))
        at += len(header)
        if isinstance(what, Content):
            if what.offset != at:  # a shard that ``index`` found, by another writer
                return None
            found.append(Piece(at, None, what))
        else:
            found.append(Piece(at, what, None))
        found.append(Piece(at + size, padding(size), None))
        at += size + len(padding(size))
    return found


def end_of(found: list[Piece]) -> int:
    """Offset at which the last piece ends."""
    last = found[-1]
    return last.offset + len(last.known or b"")


def tail(at: int) -> Piece:
    """The blocks that end a shard."""
    return Piece(at, END, None)


def index_of(samples: Iterable[Entry]) -> bytes | None:
    """The index of a shard that fastdata wrote, from the catalog; None for another layout."""
    lines = []
    at = 0
    for entry in samples:
        found = pieces(entry, at)
        if found is None:
            return None
        key = os.fsencode(entry.key)
        image, *further = entry.contents
        label = found[4]  # after header, image, padding and the label's header
        members = [
            (image.extension, image.offset, image.size),
            ("cls", label.offset, len(label.known or b"")),
            *((content.extension, content.offset, content.size) for content in further),
        ]
        lines.append(
            index_line(
                [
                    (os.fsencode(ending), offset, size, key + b"." + os.fsencode(ending))
                    for ending, offset, size in members
                ]
            )
        )
        at = end_of(found)
    return index_file(lines)
