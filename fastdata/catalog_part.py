"""One part of a catalog: checks each block of 64 KiB before anything in it is used."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.catalog_format import (
    BLOCK,
    BLOCK_BITS,
    FIELD,
    MAX_TEXT,
    ROW,
    Header,
    aligned,
    blocks,
)
from fastdata.checksum import crc32c
from fastdata.errors import CatalogError

Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]


class CatalogPart:
    """One part of a catalog.

    Args:
        header: Of the whole catalog.
        number: Of this part.
        data: Its bytes, used in place.
        where: The file, for errors.

    Raises:
        CatalogError: Its length or its table of checksums is not what the header states; and from
            every method, where the bytes it touches do not match their checksum.
    """

    def __init__(self, header: Header, number: int, data: memoryview, where: str) -> None:
        self._where = f"{where}: part {number}"
        if len(data) != header.part_bytes(number):
            raise CatalogError(
                f"{self._where}: {len(data)} bytes, the header states {header.part_bytes(number)}"
            )
        covered = header.covered_bytes(number)
        if crc32c(data[covered:]) != header.parts[number].crc:
            raise CatalogError(f"{self._where}: the table of checksums does not match its own")
        n = header.part_rows(number)
        text = n * ROW.itemsize
        fields = text + aligned(header.parts[number].text)
        self._data = data[:covered]
        self._table = np.frombuffer(data, "<u4", blocks(covered), covered)
        self._good = np.zeros(len(self._table), np.bool_)
        self._rows = np.frombuffer(data, ROW, n)
        self._text = data[text : text + header.parts[number].text]
        self._text_start = text
        self._fields = [
            np.frombuffer(data, FIELD, n, fields + i * n * FIELD.itemsize)
            for i in range(len(header.fields))
        ]
        self._field_starts = [fields + i * n * FIELD.itemsize for i in range(len(header.fields))]

    def rows(self, local: Ids) -> Rows:
        """Copy rows by their number within the part."""
        self._check_spans(local * ROW.itemsize, ROW.itemsize)
        return self._rows[local]

    def all_rows(self) -> Rows:
        """Every row of the part, in place."""
        self._check(np.arange(blocks(len(self._rows) * ROW.itemsize)))
        return self._rows

    def field(self, section: int, local: Ids) -> Rows:
        """Copy entries of one of the sections of fields."""
        start = self._field_starts[section] + local * FIELD.itemsize
        self._check_spans(start, FIELD.itemsize)
        return self._fields[section][local]

    def texts(self, local: Ids) -> Iterator[bytes]:
        """Key, NUL and name of each row."""
        before = np.maximum(local - 1, 0)
        ends = self.rows(local)["text_end"].astype(np.int64)
        starts = np.where(local > 0, self.rows(before)["text_end"].astype(np.int64), 0)
        sizes = ends - starts
        if sizes.size and (
            sizes.min() < 1 or sizes.max() > MAX_TEXT or ends.max() > len(self._text)
        ):
            raise CatalogError(f"{self._where}: text of a row lies outside of the text section")
        self._check_spans(starts + self._text_start, sizes)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            text = bytes(self._text[start:end])
            if text.count(0) != 1:
                raise CatalogError(f"{self._where}: text of a row is not a key, NUL and a name")
            yield text

    def _check_spans(self, starts: Ids, sizes: Ids | int) -> None:
        """Check the blocks of spans of at most ``BLOCK`` bytes each."""
        self._check(np.concatenate([starts, starts + (sizes - 1)]) >> BLOCK_BITS)

    def _check(self, touched: Ids) -> None:
        if self._good[touched].all():
            return
        for block in np.unique(touched).tolist():
            if not self._good[block]:
                data = self._data[block * BLOCK : (block + 1) * BLOCK]
                if crc32c(data) != self._table[block]:
                    raise CatalogError(
                        f"{self._where}: bytes {block * BLOCK} to {block * BLOCK + len(data) - 1} "
                        "do not match their checksum; restore the file, or pack again"
                    )
                self._good[block] = True
