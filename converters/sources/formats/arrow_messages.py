"""Checks the messages of an Arrow stream before the library allocates memory for them.

A message is a mark, the size of its metadata, the metadata (a flatbuffer), and a body. The library
trusts the metadata for the sizes of the body and of what it decompresses to; here they are compared
with the file. (Apache Arrow, format/Message.fbs and docs/format/Columnar.rst.)
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from fastdata.converters.problems import read_range
from fastdata.converters.sources.formats.bounds import check_compressed
from fastdata.errors import ShardError
from fastdata.system.untrusted import open_regular

_MARK = 0xFFFFFFFF  # files written before 2019 lack it
_MOST_METADATA = 64 << 20
_DICTIONARY, _RECORDS = 2, 3  # kinds of messages


def check_messages(path: Path, start: int) -> None:
    """Check that every body lies within the file, and what it decompresses to.

    Args:
        path: The file.
        start: Where its stream begins.

    Raises:
        ShardError: It is truncated or damaged.
        SourceError: It decompresses to far more than it has in the file.
    """
    with open_regular(path) as fd:
        try:
            _check(fd, path, start)
        except struct.error:
            raise _error(path, "the metadata of a message are damaged") from None


def _check(fd: int, path: Path, at: int) -> None:
    end = os.fstat(fd).st_size
    while at < end:
        head = read_range(fd, at, 8).ljust(8, b"\0")
        size, after = struct.unpack("<Ii", head)
        size, at = (after, at + 8) if size == _MARK else (size, at + 4)
        if size == 0:
            return
        if not 0 < size <= min(_MOST_METADATA, end - at):
            raise _error(path, f"truncated, or metadata of {size} bytes at byte {at}")
        message = _Table.root(read_range(fd, at, size))
        at += size
        body = message.number(3, "<q")
        if not 0 <= body <= end - at:
            raise _error(path, f"truncated: {body} bytes should follow at byte {at}")
        _check_body(fd, path, message, at, body)
        at += body


def _check_body(fd: int, path: Path, message: "_Table", at: int, size: int) -> None:
    kind, content = message.number(1, "<B"), message.table(2)
    if kind == _DICTIONARY and content is not None:
        content = content.table(1)
    elif kind != _RECORDS:
        return
    if content is None or content.table(3) is None:  # not compressed
        return
    stated = 0
    for offset, length in content.pairs(2):
        if not 0 <= offset <= offset + length <= size:
            raise _error(path, f"a buffer lies outside of its message at byte {at}")
        if length >= 8:
            stated += max(0, struct.unpack("<q", read_range(fd, at + offset, 8))[0])
    check_compressed(path, size, stated)


def _error(path: Path, text: str) -> ShardError:
    return ShardError(f"{path}: cannot read this file: {text}; fetch it again")


class _Table:
    """A table of a flatbuffer; an offset that leads out of it is a struct.error."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - self._read("<i", at)
        self._end = self._read("<H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> "_Table":
        (at,) = struct.unpack_from("<I", data)
        return cls(data, at)

    def number(self, field: int, kind: str) -> int:
        """A number; 0 if the field is absent."""
        at = self._place(field)
        return self._read(kind, at) if at else 0

    def table(self, field: int) -> "_Table | None":
        """A table within this one, if there is one."""
        at = self._place(field)
        return _Table(self._data, at + self._read("<I", at)) if at else None

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Pairs of 64-bit numbers."""
        at = self._place(field)
        if at:
            at += self._read("<I", at)
            for place in range(self._read("<I", at)):
                yield self._read("<q", at + 4 + 16 * place), self._read("<q", at + 12 + 16 * place)

    def _place(self, field: int) -> int:
        entry = 4 + 2 * field
        offset = self._read("<H", self._fields + entry) if entry < self._end else 0
        return self._at + offset if offset else 0

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise struct.error
        (number,) = struct.unpack_from(kind, self._data, at)
        return int(number)
