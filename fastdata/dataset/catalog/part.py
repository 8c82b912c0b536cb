"""One part of a catalog: each block of 64 KiB is read and checked when it is first needed.

Blocks are read with ``pread``, never mapped: if the file is overwritten or truncated meanwhile,
that is an error, while a map of it would end the process (SIGBUS).
"""

import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.dataset.catalog.format import (
    ALIGN,
    BLOCK,
    BLOCK_BITS,
    FIELD,
    MAX_TEXT,
    ROW,
    Part,
)
from fastdata.errors import CatalogError
from fastdata.system.checksum import crc32c

Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]

Read = Callable[[int, int], bytes]
"""Reads bytes of a part, given offset and size; fewer where the part ends."""


def in_memory(part: bytes | memoryview) -> Read:
    """Make a reader of a part that is in memory."""
    return lambda start, size: bytes(part[start : start + size])


class CatalogPart:
    """One part of a catalog; safe to use from many threads.

    Args:
        part: What the header says of it.
        fields: Number of further fields.
        read: Reads its bytes: first the table, then one block at a time.
        where: The file and the part's number, for errors.

    Raises:
        CatalogError: Its length or its table of checksums is not what the header states; and, by
            every method, the bytes it needs do not match their checksum.
    """

    def __init__(self, part: Part, fields: int, read: Read, where: str) -> None:
        self._where = where
        self._read = read
        self._covered = part.covered
        size = part.bytes - part.covered
        table = read(part.covered, size)
        if len(table) != size:
            raise CatalogError(f"{self._where}: ends before its {part.bytes} bytes do")
        if crc32c(table) != part.crc:
            raise CatalogError(
                f"{self._where}: the table of checksums does not match its own checksum"
            )
        self._table = np.frombuffer(table, "<u4", -(-part.covered // BLOCK))
        self._n = part.rows
        self._text_start = part.rows * ROW.itemsize
        self._text_size = part.text
        first_field = self._text_start + part.text + -part.text % ALIGN
        self._field_starts = [first_field + i * part.rows * FIELD.itemsize for i in range(fields)]
        self._blocks: _Blocks | None = None

    def forget(self) -> None:
        """Free all blocks; they are read again when they are needed."""
        self._blocks = None

    def rows(self, local: Ids) -> Rows:
        """Copy rows, given their numbers within the part."""
        return self._spans(0, ROW, local)

    def all_rows(self) -> Rows:
        """All rows of the part, not to be written to."""
        held = self._held()
        self._need(held, np.arange(-(-self._text_start // BLOCK)))
        return np.frombuffer(held.memory, ROW, self._n)

    def field(self, section: int, local: Ids) -> Rows:
        """Copy entries of a field's section, given its number."""
        return self._spans(self._field_starts[section], FIELD, local)

    def texts(self, local: Ids) -> Iterator[bytes]:
        """Yield key, NUL and name of each row."""
        before = np.maximum(local - 1, 0)
        ends = self.rows(local)["text_end"].astype(np.int64)
        starts = np.where(local > 0, self.rows(before)["text_end"].astype(np.int64), 0)
        sizes = ends - starts
        # Checksums tell what was written, not that it made sense: a crafted catalog passes them.
        if sizes.size and (
            sizes.min() < 1 or sizes.max() > MAX_TEXT or ends.max() > self._text_size
        ):
            raise CatalogError(f"{self._where}: text of a row lies outside the text section")
        starts, ends = starts + self._text_start, ends + self._text_start
        held = self._held()
        self._need_spans(held, starts, sizes)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            text = held.memory[start:end]
            if text.count(0) != 1:
                raise CatalogError(f"{self._where}: text of a row is not a key, NUL and a name")
            yield text

    def _spans(self, start: int, kind: "np.dtype[np.void]", local: Ids) -> Rows:
        """Copy entries of a section, given their numbers."""
        held = self._held()
        self._need_spans(held, start + local * kind.itemsize, kind.itemsize)
        # Indexed with an array, so a copy: it outlives the memory.
        return np.frombuffer(held.memory, kind, self._n, start)[local]

    def _held(self) -> "_Blocks":
        """The blocks read so far, held for one call: another thread may forget them meanwhile."""
        held = self._blocks
        if held is None:
            # Two threads may both get here; each uses what it read, and either may stay.
            held = self._blocks = _Blocks(self._covered, len(self._table))
        return held

    def _need_spans(self, held: "_Blocks", starts: Ids, sizes: Ids | int) -> None:
        """Read the blocks of spans of at most ``BLOCK`` bytes each."""
        # Such a span lies in two blocks at most: that of its first byte and that of its last.
        self._need(held, np.concatenate([starts, starts + (sizes - 1)]) >> BLOCK_BITS)

    def _need(self, held: "_Blocks", touched: Ids) -> None:
        if held.good[touched].all():  # nearly always: then there is no loop in Python
            return
        for block in np.unique(touched).tolist():
            if not held.good[block]:
                self._load(held, block)

    def _load(self, held: "_Blocks", block: int) -> None:
        start = block * BLOCK
        size = min(BLOCK, self._covered - start)
        # Checked before it is copied: another thread may be using the same block, which is good.
        data = self._read(start, size)
        if len(data) != size or crc32c(data) != self._table[block]:
            raise CatalogError(
                f"{self._where}: bytes {start} to {start + size - 1} "
                "do not match their checksum; restore the file, or pack again"
            )
        held.memory[start : start + size] = data
        held.good[block] = True


class _Blocks:
    """Memory for the blocks of a part, of which only those that were read are allocated."""

    def __init__(self, size: int, count: int) -> None:
        # Private, so that forked processes do not share what one of them reads.
        self.memory = mmap.mmap(-1, max(1, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A huge page would take 2 MiB for a block of 64 KiB.
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            self.memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.good = np.zeros(count, np.bool_)
