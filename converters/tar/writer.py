"""Writes samples as WebDataset tar shards, each with the index that DALI's reader takes."""

import hashlib
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

from fastdata.converters.journal import Journal
from fastdata.converters.sink import Sink
from fastdata.converters.tar.format import END, member_header, padding
from fastdata.converters.writer import Fields, Item, Placed
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    Shard,
    Stored,
    digest_text,
    sha256_text,
)
from fastdata.system.checksum import crc32c
from fastdata.system.files import create, publish, temporary, write_all, write_atomically

# Hashing and writing release the GIL, and wait for it again behind the readers: so seldom.
_CHUNK = 1 << 20
_SPACE = re.compile(rb"[\t\n\v\f\r ]")


def index_name(shard: str) -> str:
    """File name of a shard's index."""
    return f"{shard.removesuffix('.tar')}.idx"


class TarWriter:
    """A folder of shards; see :class:`fastdata.converters.writer.Writer`.

    Args:
        folder: An existing folder.
        shard_size: Bytes that a shard does not exceed, unless a single sample does.
        journal: Where shards are noted once they are whole; it was begun.
        done: Shards that are whole already; this writer continues behind them.
    """

    def __init__(
        self, folder: Path, shard_size: int, journal: Journal, done: tuple[Shard, ...] = ()
    ) -> None:
        self.sink = Sink()
        self._folder = folder
        self._shard_size = shard_size
        self._journal = journal
        self._shards = list(done)  # the sink's thread appends to it
        self._number = len(done)
        self._open: _Shard | None = None
        self._unfinished: list[_Shard] = []
        self._next: _Members | None = None

    def room(self, item: Item) -> bool:
        """Whether the shard stays within its size with this sample."""
        end = self._members(item).size + len(END)
        return self._open is None or self._open.bytes + end <= self._shard_size

    def append(self, item: Item) -> Placed:
        """Write the next sample: KEY.extension, KEY.cls, then KEY.field for each field."""
        members = self._members(item)
        if self._open is None:
            self._open = _Shard(self._folder, self._number, self.sink)
            self._unfinished.append(self._open)
        offsets = self._open.write(members)
        placed = {
            name: (offsets[name], len(data), crc32c(data)) for name, data in item.fields.items()
        }
        return Placed(self._number, offsets[item.extension], placed)

    def end_shard(self, note: bytes) -> None:
        """End the archive; its thread then syncs, notes and publishes it."""
        if self._open is not None:
            self._open.flush(END)
            self.sink.put(partial(self._publish, self._open, note), len(note))
            self._open = None
            self._number += 1

    def finish(self) -> tuple[Shard, ...]:
        """Wait for the last shard."""
        self.sink.join()
        self.sink.close()
        return tuple(self._shards)

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the catalog beside the shards."""
        return Stored(*catalog.write(self._folder / CATALOG_NAME))

    def publish(self, manifest: bytes) -> None:
        """Write dataset.json."""
        write_atomically(self._folder / FILE_NAME, manifest)

    def abort(self) -> None:
        """Remove the shards that are being written."""
        self.sink.close()
        for shard in self._unfinished:
            shard.remove()

    def _members(self, item: Item) -> "_Members":
        if self._next is None or self._next.item is not item:
            self._next = _Members(item)
        return self._next

    def _publish(self, shard: "_Shard", note: bytes) -> None:
        self._shards.append(shard.publish(self._journal, note))
        self._unfinished.remove(shard)


class _Members:
    """A sample as it goes into the archive.

    Attributes:
        item: The sample.
        data: Content of each member by extension.
        headers: Their headers, in the same order.
        size: Bytes of all together, padding included.
    """

    def __init__(self, item: Item) -> None:
        self.item = item
        self.data: Fields = {item.extension: item.image, "cls": b"%d" % item.label, **item.fields}
        self.headers = [
            member_header(item.key + b"." + extension.encode("ascii"), len(data))
            for extension, data in self.data.items()
        ]
        self.size = sum(map(len, self.headers)) + sum(
            len(data) + -len(data) % 512 for data in self.data.values()
        )


class _Shard:
    """The shard that is being written, under a temporary name."""

    def __init__(self, folder: Path, number: int, sink: Sink) -> None:
        self._path = folder / f"shard-{number:06d}.tar"
        self._tmp = temporary(self._path)
        self._sink = sink
        self._fd = -1  # opened by the sink's thread
        self._pieces: list[bytes] = []
        self._flushed = 0
        self._digest = hashlib.sha256()
        self._index: list[bytes] = []
        self.bytes = 0

    def write(self, members: _Members) -> dict[str, int]:
        """Write a sample's members; return the offset of each one's data by extension."""
        offsets = {}
        line = []
        for header, (extension, data) in zip(members.headers, members.data.items(), strict=True):
            offsets[extension] = self.bytes + len(header)
            # DALI splits the line at white space and takes the name for its messages only.
            name = _SPACE.sub(b"_", members.item.key + b"." + extension.encode("ascii"))
            line.append(
                b"%b %d %d %b" % (extension.encode("ascii"), offsets[extension], len(data), name)
            )
            pieces = (header, data, padding(len(data)))
            self._pieces += pieces
            self.bytes += sum(map(len, pieces))
        self._index.append(b" ".join(line))
        if self.bytes - self._flushed >= _CHUNK:
            self.flush()
        return offsets

    def flush(self, end: bytes = b"") -> None:
        """Hand over what has gathered, and these bytes behind it."""
        self._pieces.append(end)
        self.bytes += len(end)
        self._sink.put(partial(self._write, self._pieces), self.bytes - self._flushed)
        self._pieces = []
        self._flushed = self.bytes

    def publish(self, journal: Journal, note: bytes) -> Shard:
        """Put archive and index on the disk, then into the journal, then under their names."""
        os.fsync(self._fd)
        self._close()
        index = b"v1.2 %d\n%b\n" % (len(self._index), b"\n".join(self._index))
        # The index goes first: where the shard is, all of it is.
        write_atomically(self._path.with_name(index_name(self._path.name)), index)
        shard = Shard(
            bytes=self.bytes,
            digest=sha256_text(self._digest.digest()),
            name=self._path.name,
            samples=len(self._index),
            index=digest_text(index),
        )
        journal.append(shard, note)
        publish(self._path)
        return shard

    def remove(self) -> None:
        """Close and remove the temporary file, whatever state it is in."""
        with suppress(OSError):
            self._close()
        self._tmp.unlink(missing_ok=True)

    def _write(self, pieces: list[bytes]) -> None:
        if self._fd < 0:
            self._fd = create(self._tmp)
        data = b"".join(pieces)
        self._digest.update(data)
        write_all(self._fd, data)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
