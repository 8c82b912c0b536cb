"""Builds a catalog in flat buffers: 40 bytes per sample and its text, never a list of objects."""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

import numpy as np

from fastdata.dataset.catalog.format import (
    ABSENT,
    ALIGN,
    BLOCK,
    FIELD,
    MAGIC,
    MAX_TEXT,
    PART_ROWS,
    PREAMBLE,
    ROW,
    VERSION,
)
from fastdata.dataset.manifest import sha256_text
from fastdata.system.checksum import crc32c
from fastdata.system.files import write_atomically

_ROW = struct.Struct("<QIIIiIIII")  # the layout of ROW; numpy packs rows ten times slower
_FIELD = struct.Struct("<QII")
_COUNT = struct.Struct("<Q")


class CatalogRow(NamedTuple):
    """What a catalog says of one sample.

    Attributes:
        key: Its key, without a NUL byte.
        name: Its original name, without a NUL byte.
        offset: Of the image, within its shard or its LMDB value.
        length: Bytes of the image.
        crc: CRC32C of the image.
        label: Index of its class, or -1.
        width: Pixels.
        height: Pixels.
        flags: Code of the image's format, its index in ``fastdata.images.probe.FORMATS``.
        fields: (offset, length, CRC32C) of each further field that it has.
        shard: Number of its shard or group.
    """

    key: bytes
    name: bytes
    offset: int
    length: int
    crc: int
    label: int
    width: int
    height: int
    flags: int
    fields: Mapping[str, tuple[int, int, int]] = MappingProxyType({})
    shard: int = 0


class CatalogBuilder:
    """Collects rows in the order of their ids.

    Args:
        fields: Names of further fields that samples may have.
    """

    def __init__(self, fields: tuple[str, ...] = ()) -> None:
        self._names = fields
        self._rows = bytearray()
        self._text = bytearray()
        self._text_starts = [0]  # of each part, within the whole text
        self._fields = {name: bytearray() for name in fields}

    def __len__(self) -> int:
        """Number of rows so far."""
        return len(self._rows) // ROW.itemsize

    def append(self, row: CatalogRow) -> None:
        """Add the next sample.

        Raises:
            ValueError: A catalog cannot hold its key, its name, or one of its numbers.
        """
        key, name, offset, length, crc, label, width, height, flags, fields, shard = row
        text = key + b"\0" + name
        if len(text) > MAX_TEXT or text.count(0) != 1:
            raise ValueError(
                f"key and name must hold no NUL and at most {MAX_TEXT} bytes together, "
                f"found {len(text)} bytes: {text[:80]!r}"
            )
        if len(self) % PART_ROWS == 0 and self._rows:  # a new part, whose text counts from here
            self._text_starts.append(len(self._text))
        try:
            end = len(self._text) + len(text) - self._text_starts[-1]
            packed = _ROW.pack(offset, length, crc, shard, label, width, height, flags, end)
        except struct.error as error:
            raise ValueError(f"{key!r}: a number does not fit its column: {error}") from error
        self._text += text
        self._rows += packed
        for field in self._names:
            self._fields[field] += _FIELD.pack(*fields.get(field, (ABSENT, 0, 0)))

    def since(self, row: int) -> bytes:
        """Encode all rows from this one on with their text and fields, for :meth:`extend`."""
        text = len(self._text)
        if row < len(self):
            part = row // PART_ROWS
            before = self._end_of(row - 1) if row % PART_ROWS else 0
            text = self._text_starts[part] + before
        columns = (column[row * FIELD.itemsize :] for column in self._fields.values())
        count = _COUNT.pack(len(self) - row)
        return b"".join((count, self._rows[row * ROW.itemsize :], *columns, self._text[text:]))

    def extend(self, rows: bytes) -> None:
        """Add what :meth:`since` returned for a catalog of the same fields and earlier rows.

        Raises:
            ValueError: It does not continue these rows.
        """
        count = int.from_bytes(rows[: _COUNT.size], "little")
        view = memoryview(rows)[_COUNT.size :]
        columns = [self._rows, *self._fields.values()]
        sizes = [count * ROW.itemsize, *(count * FIELD.itemsize for _ in self._fields)]
        if sum(sizes) > len(view):
            raise ValueError(f"{count} rows do not fit into {len(rows)} bytes")
        for column, size in zip(columns, sizes, strict=True):
            column.extend(view[:size])
            view = view[size:]
        self._text += view
        # A row knows where its text ends within its part, so the last row of a part tells its end.
        for number in range(len(self._text_starts), self.parts()):
            last = self._end_of(number * PART_ROWS - 1)
            self._text_starts.append(self._text_starts[-1] + last)
        if self._rows and self._text_starts[-1] + self._end_of(len(self) - 1) != len(self._text):
            raise ValueError(f"{count} rows do not continue the {len(self) - count} before them")

    def labels_digest(self) -> str:
        """SHA-256 of all labels as little-endian int32, in hexadecimal digits, for fingerprints."""
        labels = np.frombuffer(self._rows, ROW)["label"]
        return hashlib.sha256(labels.tobytes()).hexdigest()

    def label_counts(self, classes: int) -> tuple[int, ...]:
        """Number of samples of each label from 0 to ``classes - 1``."""
        labels = np.frombuffer(self._rows, ROW)["label"]
        # bincount() refuses negative labels, and would grow for large ones.
        known = labels[(labels >= 0) & (labels < classes)]
        return tuple(np.bincount(known, minlength=classes).tolist())

    def header(self) -> bytes:
        """Encode the header, which the parts follow."""
        entries = [self._describe(number) for number in range(self.parts())]
        return encode_header(len(self), self._names, entries)

    def parts(self) -> int:
        """Number of parts."""
        return -(-len(self) // PART_ROWS)

    def part(self, number: int) -> bytes:
        """Encode one part with its table of checksums."""
        covered = b"".join(self._sections(number))
        return covered + _table(covered)

    def encode(self) -> Iterator[bytes]:
        """Yield the header and each part: joined, they are the content of the file."""
        yield self.header()
        for number in range(self.parts()):
            yield self.part(number)

    def write(self, path: Path) -> tuple[int, str]:
        """Write the catalog of a folder of shards, completely or not at all.

        Returns:
            Its size in bytes and its digest, ``"sha256:..."``.
        """
        found: list[tuple[int, str]] = []
        write_atomically(path, lambda file: found.append(self.write_into(file)))
        return found[0]

    def write_into(self, file: BinaryIO) -> tuple[int, str]:
        """Write the catalog into an open file; returns as :meth:`write` does."""
        digest = hashlib.sha256()
        size = 0
        for piece in self.encode():
            digest.update(piece)
            size += file.write(piece)
        return size, sha256_text(digest.digest())

    def _end_of(self, row: int) -> int:
        """End of a row's text within the text of its part."""
        return int(_ROW.unpack_from(self._rows, row * ROW.itemsize)[-1])

    def _describe(self, number: int) -> tuple[int, int]:
        # The table is computed again when the part is written: no encoded part stays in memory.
        start, stop = self._text_span(number)
        return stop - start, crc32c(_table(b"".join(self._sections(number))))

    def _text_span(self, number: int) -> tuple[int, int]:
        bounds = [*self._text_starts, len(self._text)]
        return bounds[number], bounds[number + 1]

    def _sections(self, number: int) -> Iterator[bytearray]:
        first = number * PART_ROWS
        last = first + PART_ROWS
        yield self._rows[first * ROW.itemsize : last * ROW.itemsize]
        start, stop = self._text_span(number)
        yield self._text[start:stop] + bytes((start - stop) % ALIGN)
        for column in self._fields.values():
            yield column[first * FIELD.itemsize : last * FIELD.itemsize]


def _table(covered: bytes) -> bytes:
    sums = [crc32c(covered[start : start + BLOCK]) for start in range(0, len(covered), BLOCK)]
    table = struct.pack(f"<{len(sums)}I", *sums)
    return table + bytes(-len(table) % ALIGN)


def encode_header(rows: int, fields: tuple[str, ...], parts: list[tuple[int, int]]) -> bytes:
    """Write a header.

    Args:
        rows: Number of samples.
        fields: Names of further fields.
        parts: Of each part the bytes of its text without padding, and the CRC32C of its table.
    """
    # Sorted and without spaces: equal catalogs have equal bytes.
    content = {
        "fields": fields,
        "parts": [{"crc": crc, "text": text} for text, crc in parts],
        "rows": rows,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
    text += b" " * (-(PREAMBLE.size + len(text)) % ALIGN)  # within the JSON: parts start aligned
    start = PREAMBLE.pack(MAGIC, VERSION, len(text), 0)[:16]
    return start + struct.pack("<I", crc32c(start + text)) + text
