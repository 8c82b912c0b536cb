"""The bytes of a catalog: constants and tables that whoever writes or reads one agrees on.

A catalog is a header and a chain of parts of ``PART_ROWS`` rows each (docs/format.md). A part is
three kinds of sections, each a multiple of 8 bytes, and a table that holds a CRC32C for each block
of them:

    rows     n x ROW
    text     key, NUL, original name of every row, end to end
    field    n x FIELD, once for each further field
    table    uint32 for each BLOCK bytes of all of the above

The header holds a checksum of itself and one of each part's table, so that every bit is covered.
"""

import struct
from typing import NamedTuple

import numpy as np

MAGIC = b"\x89FDC\r\n\x1a\n"  # as PNG's: a transfer in text mode breaks it
VERSION = 1
PREAMBLE = struct.Struct("<8sIII")  # magic, version, length of the JSON, CRC32C of the header

PART_BITS = 18
PART_ROWS = 1 << PART_BITS
BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
ALIGN = 8  # `-size % ALIGN` bytes of padding follow a section and a table
MAX_TEXT = BLOCK  # of one row, so that it lies in two blocks at most
ABSENT = 2**64 - 1  # offset of a field that a sample lacks
FORMAT_MASK = 0xFF  # of a row's flags: index into fastdata.images.probe.FORMATS

ROW = np.dtype(
    [
        ("offset", "<u8"),  # of the image, within its shard or its LMDB value
        ("length", "<u4"),  # of the image, bytes
        ("crc", "<u4"),  # CRC32C of the image
        ("shard", "<u4"),  # number of the shard, or of the group of LMDB entries
        ("label", "<i4"),  # -1 for none
        ("width", "<u4"),  # pixels, as stored (EXIF orientation not applied)
        ("height", "<u4"),
        ("flags", "<u4"),  # the image's format in FORMAT_MASK; the other bits are 0
        ("text_end", "<u4"),  # end of this row's text within the part's text section
    ]
)
FIELD = np.dtype([("offset", "<u8"), ("length", "<u4"), ("crc", "<u4")])


class Part(NamedTuple):
    """Where one part of a catalog lies, and how it is laid out.

    Attributes:
        rows: Number of its rows: ``PART_ROWS``, or what is left for the last part.
        text: Bytes of its text section without padding.
        crc: CRC32C of its table of checksums.
        start: Its offset in a file that holds the whole catalog.
        covered: Bytes that its table covers; the table follows them.
        bytes: All of its bytes.
    """

    rows: int
    text: int
    crc: int
    start: int
    covered: int
    bytes: int


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
