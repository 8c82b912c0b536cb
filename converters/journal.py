"""The journal of a pack: what is finished, so that an interrupted pack resumes after it.

A file of records that only grows, and is synced after each. The first record is the mark, which
says what is packed and how; every other one is a finished shard with the tally's note of it:

    magic, length of the JSON text, CRC-32C of all else in the record, length of the note
    the JSON text
    the note

Half a record, or zeros, that a crash leaves at the end do not match their checksum, and the journal
then ends at the record before.
"""

import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.manifest import Shard, Skipped, read_shard
from fastdata.errors import CorruptError, DestinationError
from fastdata.system.checksum import crc32c
from fastdata.system.files import fsync_folder, open_own, write_all, write_atomically
from fastdata.system.untrusted import JsonFields

_HEAD = struct.Struct("<8sIIQ")  # magic, bytes of the text, CRC-32C, bytes of the note
_MAGIC = b"FDJRNL1\n"
_SIZE = struct.Struct("<I")  # of a note's text
_ADVICE = "it was edited: remove it and pack again with --overwrite"

Noted = tuple[Shard, bytes]
"""A finished shard, and its note."""


class Journal:
    """The journal of one destination.

    Args:
        path: Its file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, mark: str) -> None:
        """Start over with this mark and no shard.

        Args:
            mark: What is packed and how, JSON in one spelling.

        Raises:
            OSError: The file cannot be read or written; so below.
            DestinationError: It is a link, or not a regular file; so below.
        """
        # Atomically, so that there is never a journal without a mark to know it by.
        write_atomically(self.path, _record(mark.encode("ascii"), b""))

    def mark(self) -> str | None:
        """The mark; None if there is no journal, or its first record is damaged."""
        for text, _, _ in self._records():
            return text.decode("ascii", "backslashreplace")
        return None

    def refuse_other(self, mark: str, destination: Path) -> None:
        """Refuse to continue, or to remove, the work of a pack of something else.

        Raises:
            DestinationError: There is a journal with another mark.
        """
        if os.path.lexists(self.path) and self.mark() != mark:
            raise DestinationError(
                f"{destination}: holds an unfinished pack of another source or with other options; "
                "use --overwrite to remove it"
            )

    def append(self, shard: Shard, note: bytes) -> None:
        """Add a shard that is written and synced; when this returns, its record is on the disk."""
        record = _record(json.dumps(asdict(shard), sort_keys=True).encode("ascii"), note)
        # Opened each time: a descriptor that is held would follow the file if it were replaced.
        fd = open_own(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(fd, record)
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self) -> list[Noted]:
        """The shards and their notes, up to the first record that is incomplete or damaged.

        Raises:
            CorruptError: A record matches its checksum, but no pack can have written it.
        """
        records = list(self._records())[1:]
        return [(self._shard(text), note) for text, note, _ in records]

    def keep(self, count: int) -> None:
        """Drop all but the first ``count`` shards.

        The file is replaced, so that hard links to the old one do not see what is appended.
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
        return read_shard(JsonFields.read(text, str(self.path), CorruptError, _ADVICE))

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
    """Text and note of the next record; None if it is missing or damaged."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, text_bytes, crc, note_bytes = _HEAD.unpack(head)
    # Sizes are checked before they are read: those of a damaged head may be any number.
    if magic != _MAGIC or file.tell() + text_bytes + note_bytes > size:
        return None
    text, note = file.read(text_bytes), file.read(note_bytes)
    if crc32c(struct.pack("<IQ", text_bytes, note_bytes) + text + note) != crc:
        return None
    return text, note


class Tally:
    """What a pack has done up to a position in its order.

    It is written to the journal piece by piece, a note for each shard; a pack that resumes takes
    the notes of the finished shards.

    Args:
        fields: Names of further fields that samples may have.

    Attributes:
        catalog: The rows of all samples.
        skipped: Files that were left out while packing, in packing order.
        not_recoded: How many JPEGs were to be re-encoded and could not be, by reason.
        lossy_notes: How many images were packed with a change that is worth knowing, by change.
        position: Files that were dealt with.
        read_bytes: Bytes of these files.
        source_bytes: Bytes of those that were packed.
        image_bytes: Bytes of their images as stored.
    """

    def __init__(self, fields: tuple[str, ...] = ()) -> None:
        self.catalog = CatalogBuilder(fields)
        self.skipped: list[Skipped] = []
        self.not_recoded: Counter[str] = Counter()
        self.lossy_notes: Counter[str] = Counter()
        self.position = 0
        self.read_bytes = 0
        self.source_bytes = 0
        self.image_bytes = 0
        self._rows_written = 0
        self._skipped_written = 0

    def note(self) -> bytes:
        """What was added since the last note."""
        content = {
            "image_bytes": self.image_bytes,
            "kept": self.not_recoded,
            "noted": self.lossy_notes,
            "position": self.position,
            "read_bytes": self.read_bytes,
            "skipped": self.skipped[self._skipped_written :],
            "source_bytes": self.source_bytes,
        }
        text = json.dumps(content).encode("ascii")
        # The catalog's rows are written as they are: as JSON they would be several times as large.
        rows = self.catalog.since(self._rows_written)
        self._mark_written()
        return _SIZE.pack(len(text)) + text + rows

    def take(self, note: bytes, where: str) -> None:
        """Add what a note says; notes must come in the order in which they were made.

        Args:
            note: What :meth:`note` gave.
            where: The journal that holds it, for errors.

        Raises:
            CorruptError: No pack can have written it.
        """
        size = int.from_bytes(note[: _SIZE.size], "little")
        end = _SIZE.size + size
        fields = JsonFields.read(note[_SIZE.size : end], where, CorruptError, _ADVICE)
        self.skipped += (_skipped(fields, pair) for pair in fields.list_of("skipped", list))
        # Skipped files and rows add up; counters and the position hold the sum so far.
        self.not_recoded = Counter(fields.counts("kept"))
        self.lossy_notes = Counter(fields.counts("noted"))
        self.position = fields.count("position")
        self.read_bytes = fields.count("read_bytes")
        self.source_bytes = fields.count("source_bytes")
        self.image_bytes = fields.count("image_bytes")
        fields.end()
        try:
            self.catalog.extend(note[end:])
        except ValueError as error:
            raise fields.problem(f"rows of the catalog are damaged: {error}") from None
        self._mark_written()

    def _mark_written(self) -> None:
        self._rows_written = len(self.catalog)
        self._skipped_written = len(self.skipped)


def _skipped(fields: JsonFields, pair: list[object]) -> Skipped:
    if len(pair) != len(Skipped._fields) or not all(isinstance(text, str) for text in pair):
        raise fields.problem("'skipped' must hold pairs of texts")
    return Skipped(*map(str, pair))


def encode_report(skipped: Iterable[Skipped]) -> bytes:
    """Content of skipped.jsonl: a line for each file that was left out, sorted."""
    lines = (json.dumps(entry._asdict(), sort_keys=True) + "\n" for entry in sorted(skipped))
    return "".join(lines).encode("ascii")
