"""Bytes of a catalog: what its header and its parts look like (docs/format.md).

A catalog is a header and a chain of parts of ``PART_ROWS`` rows each. A part is three kinds of
sections, each a multiple of 8 bytes, and a table that holds a CRC32C for each block of them:

    rows     n x ROW
    text     key, NUL, original name of every row, end to end
    field    n x FIELD, once for each further field
    table    uint32 for each BLOCK bytes of all of the above

The header holds a checksum of itself and one of each part's table, so that every bit is covered.
"""

import json
import struct
from typing import NamedTuple

import numpy as np

from fastdata.dataset.json_fields import JsonFields
from fastdata.errors import CatalogError
from fastdata.system.checksum import crc32c

MAGIC = b"\x89FDC\r\n\x1a\n"  # as PNG's: a transfer in text mode breaks it
VERSION = 1
PART_BITS = 18
PART_ROWS = 1 << PART_BITS
BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
MAX_TEXT = BLOCK  # of one row, so that it lies in two blocks at most
ABSENT = 2**64 - 1  # offset of a field that a sample lacks

_ADVICE = "it is damaged or was edited: `fastdata index` makes a new one for tars; or pack again"

ROW = np.dtype(
    [
        ("offset", "<u8"),  # of the image, within its shard or its LMDB value
        ("length", "<u4"),  # of the image, bytes
        ("crc", "<u4"),  # CRC32C of the image
        ("shard", "<u4"),  # number of the shard, or of the group of LMDB entries
        ("label", "<i4"),  # -1 for none
        ("width", "<u4"),  # pixels, as stored (EXIF orientation not applied)
        ("height", "<u4"),
        (
            "flags",
            "<u4",
        ),  # low 8 bits: index into fastdata.images.probe.FORMATS; the others are 0
        ("text_end", "<u4"),  # end of this row's text within the part's text section
    ]
)
FIELD = np.dtype([("offset", "<u8"), ("length", "<u4"), ("crc", "<u4")])

_PREAMBLE = struct.Struct("<8sIII")  # magic, version, length of the JSON, CRC32C of the header


class Part(NamedTuple):
    """What the header says of one part.

    Attributes:
        text: Bytes of its text section without padding.
        crc: CRC32C of its table of checksums.
    """

    text: int
    crc: int


class Header(NamedTuple):
    """What the header of a catalog says.

    Attributes:
        rows: Number of samples.
        fields: Names of further fields, in the order of their sections.
        parts: One entry for each ``PART_ROWS`` rows.
        bytes: Length of the header itself.
    """

    rows: int
    fields: tuple[str, ...]
    parts: tuple[Part, ...]
    bytes: int

    def part_rows(self, number: int) -> int:
        """Rows of one part: ``PART_ROWS``, or what is left for the last one."""
        return min(PART_ROWS, self.rows - number * PART_ROWS)

    def part_bytes(self, number: int) -> int:
        """Bytes of one part with its table."""
        covered = self.covered_bytes(number)
        return covered + aligned(4 * blocks(covered))

    def covered_bytes(self, number: int) -> int:
        """Bytes of one part that its table covers."""
        rows = self.part_rows(number)
        per_row = ROW.itemsize + FIELD.itemsize * len(self.fields)
        return rows * per_row + aligned(self.parts[number].text)


def aligned(size: int) -> int:
    """The next multiple of 8."""
    return -(-size // 8) * 8


def blocks(size: int) -> int:
    """Number of blocks that hold so many bytes."""
    return -(-size // BLOCK)


def encode_header(rows: int, fields: tuple[str, ...], parts: list[Part]) -> bytes:
    """Write a header; padded with spaces within the JSON so that parts start 8-aligned."""
    content = {
        "fields": fields,
        "parts": [{"crc": part.crc, "text": part.text} for part in parts],
        "rows": rows,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
    text = text.ljust(aligned(_PREAMBLE.size + len(text)) - _PREAMBLE.size)
    start = _PREAMBLE.pack(MAGIC, VERSION, len(text), 0)[:16]
    return start + struct.pack("<I", crc32c(start + text)) + text


def header_bytes(start: bytes, where: str) -> int:
    """Length of the header, from its first bytes.

    Args:
        start: The first 20 bytes of a catalog, or fewer if there are no more.
        where: The file, for errors.

    Raises:
        CatalogError: This is no catalog, or one of another version.
    """
    if len(start) < _PREAMBLE.size:
        raise CatalogError(f"{where}: {len(start)} bytes are too few for a catalog")
    magic, version, length, _ = _PREAMBLE.unpack_from(start)
    if magic != MAGIC:
        raise CatalogError(f"{where}: not a catalog (it starts with {start[:8].hex(' ')})")
    if version != VERSION:
        raise CatalogError(
            f"{where}: catalog of version {version}, this program reads version {VERSION}"
        )
    return _PREAMBLE.size + int(length)


def decode_header(data: bytes, where: str) -> Header:
    """Read and check a header.

    Args:
        data: The whole header and nothing else.
        where: The file, for errors.

    Raises:
        CatalogError: It is damaged, or contradicts itself.
    """
    size = header_bytes(data[: _PREAMBLE.size], where)
    if len(data) != size:
        raise CatalogError(f"{where}: header of {len(data)} bytes, it states {size}")
    crc = _PREAMBLE.unpack_from(data)[3]
    if crc32c(data[:16] + data[_PREAMBLE.size :]) != crc:
        raise CatalogError(f"{where}: the header does not match its checksum")
    content = JsonFields.read(data[_PREAMBLE.size :], where, CatalogError, _ADVICE)
    rows, fields = content.count("rows"), content.list_of("fields", str)
    parts = tuple(_part(content.inner("part", part)) for part in content.list_of("parts", dict))
    content.end()
    if len(parts) != -(-rows // PART_ROWS):
        raise content.problem(f"{rows} rows do not fit {len(parts)} parts")
    if len(set(fields)) < len(fields):
        raise content.problem("two fields have one name")
    return Header(rows, fields, parts, size)


def _part(content: JsonFields) -> Part:
    part = Part(content.count("text"), content.count("crc"))
    content.end()
    return part
