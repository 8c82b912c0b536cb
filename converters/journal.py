"""The journal of a pack: which shards are whole, so that an interrupted pack goes on behind them.

A file of records that only grows, and is synced after each. The first record is the mark, which
says what is packed and how; every other one is a shard with the note that the packing job left:

    magic, length of the JSON text, CRC-32C of all else in the record, length of the note
    the JSON text
    the note

Whatever a crash leaves at the end, a half record or zeros, does not match its checksum, and the
record before it is the last one.
"""

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from fastdata.dataset.manifest import Shard, read_shard
from fastdata.errors import CorruptError
from fastdata.system.checksum import crc32c
from fastdata.system.files import fsync_folder, open_own, write_all, write_atomically
from fastdata.system.untrusted import JsonFields

_HEAD = struct.Struct("<8sIIQ")  # magic, bytes of the text, CRC-32C, bytes of the note
_MAGIC = b"FDJRNL1\n"
ADVICE = "it was edited: remove it and pack again with --overwrite"


class Journal:
    """The journal of one destination.

    Args:
        path: Its file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, mark: str) -> None:
        """Start anew with this mark and no shard.

        Args:
            mark: What is packed and how, JSON in one spelling.

        Raises:
            OSError: Here and below, the file cannot be read or written.
            DestinationError: Below, it is a link, or no regular file.
        """
        write_atomically(self.path, _record(mark.encode("ascii"), b""))

    def mark(self) -> str | None:
        """The mark; None where there is no journal, or one whose beginning is damaged."""
        for text, _, _ in self._records():
            return text.decode("ascii", "backslashreplace")
        return None

    def append(self, shard: Shard, note: bytes) -> None:
        """Add a shard that is whole and synced; when this returns it is on the disk."""
        record = _record(json.dumps(asdict(shard), sort_keys=True).encode("ascii"), note)
        fd = open_own(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(fd, record)
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self) -> list[tuple[Shard, bytes]]:
        """The shards and their notes, up to the first record that is incomplete or damaged.

        Raises:
            CorruptError: A record has the right checksum and says what no pack wrote.
        """
        records = list(self._records())[1:]
        return [(self._shard(text), note) for text, note, _ in records]

    def keep(self, count: int) -> None:
        """Drop all but the first ``count`` shards, and what follows them.

        The file is replaced, so that whatever other names it had do not see what is appended.
        """
        ends = [end for _, _, end in self._records()]
        with os.fdopen(open_own(self.path), "rb") as file:
            data = file.read(ends[count])
        write_atomically(self.path, data)

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)
        fsync_folder(self.path.parent)

    def _shard(self, text: bytes) -> Shard:
        return read_shard(JsonFields.read(text, str(self.path), CorruptError, ADVICE))

    def _records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield text, note and end of each record."""
        try:
            file = os.fdopen(open_own(self.path), "rb")
        except FileNotFoundError:
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            while record := _next(file, size):
                yield *record, file.tell()


def _record(text: bytes, note: bytes) -> bytes:
    sizes = struct.pack("<IQ", len(text), len(note))
    return _HEAD.pack(_MAGIC, len(text), crc32c(sizes + text + note), len(note)) + text + note


def _next(file: BinaryIO, size: int) -> tuple[bytes, bytes] | None:
    """Text and note of the next record; None where there is none that is whole."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, text_bytes, crc, note_bytes = _HEAD.unpack(head)
    if magic != _MAGIC or file.tell() + text_bytes + note_bytes > size:
        return None
    text, note = file.read(text_bytes), file.read(note_bytes)
    if crc32c(struct.pack("<IQ", text_bytes, note_bytes) + text + note) != crc:
        return None
    return text, note
