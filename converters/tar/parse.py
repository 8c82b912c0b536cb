"""Reads the headers of a tar file strictly: anything unusual is an error, never a guess.

Nothing is extracted, and no name is used as a path. The file's size bounds time and memory.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from fastdata.converters.tar.shards import BLOCK
from fastdata.errors import ShardError

_ZEROS = bytes(BLOCK)
_CHUNK = 1 << 20
_MOST_HEADER = 1 << 20  # bytes of one PAX or long-name header; names have at most 64 KiB
_MOST_DIGITS = 19
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_UNSUPPORTED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"S": "a sparse file",
}


class Member(NamedTuple):
    """A regular file within a tar.

    Attributes:
        name: As the header has it: bytes, and data only.
        start: Offset of its first header block.
        offset: Of its content.
        size: Bytes of its content.
    """

    name: bytes
    start: int
    offset: int
    size: int


class _Pending(NamedTuple):
    """What an extended header says of the next member."""

    start: int
    name: bytes | None = None
    size: int | None = None


def read_members(fd: int, where: str) -> Iterator[Member]:
    """Yield the regular files of a tar in order: USTAR, PAX, and GNU's long names.

    Directories are skipped.

    Args:
        fd: Open file; its position is neither used nor moved.
        where: The file, for errors.

    Raises:
        ShardError: The file is no tar, compressed, damaged, truncated, without its two end blocks
            or with anything but zeros after them, or holds links, devices or sparse files.
        OSError: It cannot be read.
    """
    return _Parser(fd, where).members()


class _Parser:
    def __init__(self, fd: int, where: str) -> None:
        self._fd = fd
        self._where = where
        self._size = os.fstat(fd).st_size

    def members(self) -> Iterator[Member]:
        self._refuse_compressed()
        at = 0
        pending: _Pending | None = None
        while True:
            block = self._block(at)
            if block == _ZEROS:  # the first of the two that end the archive
                if pending is not None:
                    raise self._error(at, "an extended header without a member after it")
                self._end(at)
                return
            kind, name, size = self._header(block, at)
            after = at + BLOCK
            if kind in b"xgL":
                pending = self._extended(kind, after, size, pending or _Pending(at))
            else:
                if pending is not None:
                    name = name if pending.name is None else pending.name
                    size = size if pending.size is None else pending.size
                if kind == b"5":
                    size = 0  # some writers state one, but a directory has no content
                elif kind in b"0\0":
                    if not name or name.endswith(b"/") or b"\0" in name:
                        raise self._error(at, f"a file cannot be called {name[:80]!r}")
                    self._fits(after, size)
                    yield Member(name, at if pending is None else pending.start, after, size)
                else:
                    what = _UNSUPPORTED.get(kind, f"of type {kind!r}")
                    raise self._error(at, f"unsupported member {name[:80]!r}: {what}")
                pending = None
            at = after + size + -size % BLOCK

    def _refuse_compressed(self) -> None:
        for start, compressor in _COMPRESSED.items():
            if os.pread(self._fd, len(start), 0) == start:
                raise self._error(0, f"compressed by {compressor}; decompress the shard first")

    def _extended(self, kind: bytes, at: int, size: int, pending: _Pending) -> _Pending | None:
        if size > _MOST_HEADER:
            raise self._error(at, f"a header of {size} bytes, over the limit of {_MOST_HEADER}")
        self._fits(at, size)
        data = self._read(at, size)
        if kind == b"L":
            if pending.name is not None or not data.endswith(b"\0"):
                raise self._error(at, "unexpected long name")
            return pending._replace(name=data.rstrip(b"\0"))
        records = self._pax(data, at)
        # A name or size from a global header would hold for all members, which no writer means.
        sparse = any(key.startswith(b"GNU.sparse") for key in records)
        if sparse or (kind == b"g" and (b"path" in records or b"size" in records)):
            raise self._error(at, "unsupported member: sparse, or named by a global header")
        if kind == b"g":
            return None if pending.start == at - BLOCK else pending
        name = records.get(b"path", pending.name)
        if pending.name is not None or pending.size is not None:
            raise self._error(at, "two extended headers for one member")
        stated = records.get(b"size")
        if stated is None:
            return pending._replace(name=name)
        if not stated.isdigit() or len(stated) > _MOST_DIGITS:
            raise self._error(at, f"a size must be a number, found {stated[:40]!r}")
        return pending._replace(name=name, size=int(stated))

    def _pax(self, data: bytes, at: int) -> dict[bytes, bytes]:
        records = {}
        start = 0
        while start < len(data):
            digits, _, _ = data[start : start + _MOST_DIGITS].partition(b" ")
            end = start + (int(digits) if digits.isdigit() else 0)
            key, equals, value = data[start + len(digits) + 1 : end].partition(b"=")
            if end > len(data) or not equals or not value.endswith(b"\n"):
                raise self._error(at, f"not a PAX record: {data[start : start + 40]!r}")
            records[key] = value[:-1]
            start = end
        return records

    def _header(self, block: bytes, at: int) -> tuple[bytes, bytes, int]:
        """Type, name and size of one header block."""
        stated = block[148:156].strip(b" \0")
        if not _is_octal(stated) or int(stated, 8) != sum(block) - sum(block[148:156]) + 256:
            raise self._error(at, "a header does not match its checksum")
        magic = block[257:265]
        if magic not in (b"ustar\00000", b"ustar  \0"):
            raise self._error(at, f"not a header of USTAR or GNU: {magic!r}")
        name = block[:100].partition(b"\0")[0]
        # GNU's headers keep times where USTAR's have the prefix.
        prefix = block[345:500].partition(b"\0")[0] if magic.endswith(b"00") else b""
        if prefix:
            name = prefix + b"/" + name
        return block[156:157], name, self._number(block[124:136], at)

    def _number(self, field: bytes, at: int) -> int:
        if field[0] in (0x80, 0xFF):  # GNU: a binary number, here with a sign
            number = int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
            if number < 0:
                raise self._error(at, f"a negative size: {number}")
            return number
        digits = field.strip(b" \0")
        if not _is_octal(digits):
            raise self._error(at, f"a size must be a number, found {field!r}")
        return int(digits, 8)

    def _fits(self, at: int, size: int) -> None:
        if at + size + -size % BLOCK > self._size:
            raise self._error(at, f"truncated: {size} bytes must follow, found {self._size - at}")

    def _end(self, at: int) -> None:
        if self._block(at + BLOCK) != _ZEROS:
            raise self._error(at, "one block of zeros; an archive ends with two")
        for start in range(at + 2 * BLOCK, self._size, _CHUNK):
            if self._read(start, min(_CHUNK, self._size - start)).strip(b"\0"):
                raise self._error(at, "bytes after the end of the archive")

    def _block(self, at: int) -> bytes:
        if at + BLOCK > self._size:
            raise self._error(at, "truncated: two blocks of zeros must end the archive")
        return self._read(at, BLOCK)

    def _read(self, at: int, size: int) -> bytes:
        data = os.pread(self._fd, size, at)
        if len(data) != size:
            raise self._error(at, "the file was truncated while it was read")
        return data

    def _error(self, at: int, text: str) -> ShardError:
        return ShardError(f"{self._where}: at byte {at}: {text}")


def _is_octal(digits: bytes) -> bool:
    return bool(digits) and not digits.strip(b"01234567")
