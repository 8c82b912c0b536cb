"""The catalog: one row for each sample, read and checked when it is first needed.

Opening reads only the header, so it takes the same time for 500 samples as for 500 million. The
table of checksums of a part, and then each block of 64 KiB, is read and checked when it is first
needed. Blocks stay in memory up to a limit; then all of them are freed, and read again when needed.
"""

import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fastdata.dataset.catalog.format import (
    ALIGN,
    BLOCK,
    BLOCK_BITS,
    FIELD,
    MAGIC,
    PART_BITS,
    PART_ROWS,
    PREAMBLE,
    ROW,
    VERSION,
    Header,
    Part,
)
from fastdata.dataset.catalog.part import CatalogPart, Ids, Read, Rows
from fastdata.errors import CatalogError
from fastdata.system import resources
from fastdata.system.checksum import crc32c
from fastdata.system.untrusted import JsonFields, regular_fd

_ADVICE = "it is damaged or was edited: `fastdata index` makes a new one for tars; or pack again"
_LEAST = 512 << 20  # bytes that are always granted: the rows of 13 million samples


def most_held() -> int:
    """Most blocks of a catalog to hold in memory: 512 MiB of them, or more where there is room."""
    return max(_LEAST, resources.memory_share() // 4) >> BLOCK_BITS


class Catalog:
    """Random access to the rows of a data set.

    Safe to use from many threads and in a forked child. It cannot be pickled: open it again.

    Attributes:
        field_names: Names of further fields that samples may have.
    """

    def __init__(self, header: Header, load: Callable[[int], Read], where: str) -> None:
        self.field_names = header.fields
        self._header = header
        self._load = load
        self._where = where
        self._parts: list[CatalogPart | None] = [None] * len(header.parts)
        self._held = [0]  # blocks read since memory was last freed; the parts count
        self._most_held = most_held()

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Open the catalog of a folder of shards.

        Raises:
            CatalogError: The file is missing, truncated, or its header is damaged.
        """
        try:
            file = _File(path)
            # The first bytes say how long the header is, and a crafted length costs no memory.
            length = header_bytes(file.read(0, PREAMBLE.size), str(path))
            if length > file.size:
                raise CatalogError(
                    f"{path}: {file.size} bytes, shorter than the header of {length} bytes"
                )
            header = decode_header(file.read(0, length), str(path))
        except OSError as error:
            raise CatalogError(f"{path}: cannot read the catalog: {error.strerror}") from error
        # To the byte: a truncated file is an error now, not when an epoch gets to its end.
        end = header.parts[-1].start + header.parts[-1].bytes if header.parts else header.bytes
        if file.size != end:
            raise CatalogError(f"{path}: {file.size} bytes, its header states {end}")

        def part(number: int) -> Read:
            first = header.parts[number].start
            return lambda start, size: file.read(first + start, size)

        return cls(header, part, str(path))

    @classmethod
    def from_parts(cls, header: bytes, parts: Callable[[int], Read], where: str) -> Self:
        """Open a catalog whose header and parts are stored separately, as in an LMDB file.

        Args:
            header: The whole header.
            parts: Returns what reads a part, given its number.
            where: The file, for errors.

        Raises:
            CatalogError: The header is damaged.
        """
        return cls(decode_header(header, where), parts, where)

    def __len__(self) -> int:
        """Number of samples."""
        return self._header.rows

    def rows(self, ids: npt.ArrayLike) -> Rows:
        """Copy the rows of N samples.

        Args:
            ids: (N,) ids, each in [0, len(self)).

        Returns:
            (N,) array of dtype ``ROW``.

        Raises:
            IndexError: An id lies outside.
            CatalogError: The bytes of a row do not match their checksum; so for all below.
        """
        numbers = self._checked(ids)
        out = np.empty(len(numbers), ROW)
        for part, indices, local in self._by_part(numbers):
            out[indices] = part.rows(local)
        self._bound()
        return out

    def column(self, name: str) -> npt.NDArray[Any]:
        """Copy one column of all n rows, (n,), for example ``"label"``."""
        out = np.empty(len(self), ROW[name])
        for number in range(len(self._parts)):
            start = number << PART_BITS
            out[start : start + PART_ROWS] = self._part(number).all_rows()[name]
            self._bound()
        return out

    def keys(self, ids: npt.ArrayLike) -> list[str]:
        """Keys of N samples; bytes that are not UTF-8 become surrogates, as by os.fsdecode."""
        return [text[0] for text in self._texts(ids)]

    def names(self, ids: npt.ArrayLike) -> list[str]:
        """Original names of N samples: paths relative to the folder that was packed."""
        return [text[1] for text in self._texts(ids)]

    def field(self, name: str, ids: npt.ArrayLike) -> Rows:
        """Copy where a further field of N samples lies.

        Returns:
            (N,) array of dtype ``FIELD``; the offset is ``ABSENT`` where a sample lacks the field.

        Raises:
            KeyError: The data set has no such field.
        """
        if name not in self.field_names:
            raise KeyError(f"{self._where}: no field {name!r}, only {list(self.field_names)}")
        section = self.field_names.index(name)
        numbers = self._checked(ids)
        out = np.empty(len(numbers), FIELD)
        for part, indices, local in self._by_part(numbers):
            out[indices] = part.field(section, local)
        self._bound()
        return out

    def _texts(self, ids: npt.ArrayLike) -> list[tuple[str, str]]:
        numbers = self._checked(ids)
        out = [("", "")] * len(numbers)
        for part, indices, local in self._by_part(numbers):
            for index, text in zip(indices.tolist(), part.texts(local), strict=True):
                key, name = text.decode("utf-8", "surrogateescape").split("\0")
                out[index] = key, name
        self._bound()
        return out

    def _checked(self, ids: npt.ArrayLike) -> Ids:
        numbers = np.asarray(ids, np.int64).reshape(-1)
        # numpy would take negative ids from the end.
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise IndexError(
                f"ids must lie in [0, {len(self)}), found {numbers.min()} to {numbers.max()}"
            )
        return numbers

    def _by_part(self, ids: Ids) -> Iterator[tuple[CatalogPart, Ids, Ids]]:
        """Yield each part with some of the ids, their indices in ``ids``, and their local ids."""
        if len(self._parts) == 1:  # most data sets; no sorting
            yield self._part(0), np.arange(len(ids)), ids
            return
        numbers = ids >> PART_BITS
        for number in np.unique(numbers).tolist():
            indices = np.flatnonzero(numbers == number)
            yield self._part(number), indices, ids[indices] - (number << PART_BITS)

    def _part(self, number: int) -> CatalogPart:
        part = self._parts[number]
        if part is None:
            read, held = self._load(number), self._held

            # No reference back to the catalog: in a cycle with its parts it would hold its file
            # open until the garbage collector comes by.
            def counted(start: int, size: int) -> bytes:
                held[0] += 1
                return read(start, size)

            header = self._header
            # Two threads may both get here; they make equal parts, and either may stay.
            part = self._parts[number] = CatalogPart(
                header.parts[number], len(header.fields), counted, f"{self._where}: part {number}"
            )
        return part

    def _bound(self) -> None:
        """Free all blocks if they are too many."""
        if self._held[0] > self._most_held:
            self._held[0] = 0
            # All at once: to know the least recently used would cost more than to read again.
            for part in self._parts:
                if part is not None:
                    part.forget()


class _File:
    """A file that stays open as long as this object lives.

    Attributes:
        size: Bytes when it was opened.
    """

    def __init__(self, path: Path) -> None:
        """Open it; raises OSError."""
        self._path = path
        self._fd = regular_fd(path)
        # Not closed by hand: a thread may be reading, and its number must not become another file.
        weakref.finalize(self, os.close, self._fd)
        self.size = os.fstat(self._fd).st_size

    def read(self, start: int, size: int) -> bytes:
        """Read bytes, fewer where the file ends.

        Raises:
            CatalogError: It cannot be read.
        """
        try:
            return os.pread(self._fd, size, start)
        except OSError as error:
            raise CatalogError(
                f"{self._path}: cannot read the catalog: {error.strerror}"
            ) from error


def header_bytes(start: bytes, where: str) -> int:
    """Length of the header, from its first bytes.

    Args:
        start: The first 20 bytes of a catalog, or fewer if there are no more.
        where: The file, for errors.

    Raises:
        CatalogError: This is no catalog, or one of another version.
    """
    if len(start) < PREAMBLE.size:
        raise CatalogError(f"{where}: {len(start)} bytes are too few for a catalog")
    magic, version, length, _ = PREAMBLE.unpack_from(start)
    if magic != MAGIC:
        raise CatalogError(f"{where}: not a catalog (it starts with {start[:8].hex(' ')})")
    if version != VERSION:
        raise CatalogError(
            f"{where}: catalog of version {version}, this program reads version {VERSION}"
        )
    return PREAMBLE.size + int(length)


def decode_header(data: bytes, where: str) -> Header:
    """Read and check a header.

    Args:
        data: The whole header and nothing else.
        where: The file, for errors.

    Raises:
        CatalogError: It is damaged, or contradicts itself.
    """
    size = header_bytes(data[: PREAMBLE.size], where)
    if len(data) != size:
        raise CatalogError(f"{where}: header of {len(data)} bytes, it states {size}")
    crc = PREAMBLE.unpack_from(data)[3]
    if crc32c(data[:16] + data[PREAMBLE.size :]) != crc:  # all but the checksum itself
        raise CatalogError(f"{where}: the header does not match its checksum")
    content = JsonFields.read(data[PREAMBLE.size :], where, CatalogError, _ADVICE)
    rows, fields = content.count("rows"), content.list_of("fields", str)
    stated = content.list_of("parts", dict)
    content.end()
    if len(stated) != -(-rows // PART_ROWS):
        raise content.problem(f"{rows} rows do not fit {len(stated)} parts")
    if len(set(fields)) < len(fields):
        raise content.problem("two fields have one name")
    row_bytes = ROW.itemsize + FIELD.itemsize * len(fields)
    parts: list[Part] = []
    start = size
    for first, entry in zip(range(0, rows, PART_ROWS), stated, strict=True):
        part = _part(content.inner("part", entry), min(PART_ROWS, rows - first), row_bytes, start)
        start += part.bytes
        parts.append(part)
    return Header(rows, fields, tuple(parts), size)


def _part(content: JsonFields, rows: int, row_bytes: int, start: int) -> Part:
    text, crc = content.count("text"), content.count("crc")
    content.end()
    covered = rows * row_bytes + text + -text % ALIGN
    table = 4 * -(-covered // BLOCK)
    return Part(rows, text, crc, start, covered, covered + table + -table % ALIGN)
