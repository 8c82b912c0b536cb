"""Writes samples as WebDataset tar shards, each with the index that DALI's reader takes."""

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fastdata.catalog_builder import CatalogBuilder
from fastdata.checksum import crc32c
from fastdata.converters.tar_format import END, member_header, padding
from fastdata.converters.writer import Fields, Item, Placed
from fastdata.files import publish, sync, temporary, write_atomically
from fastdata.manifest import CATALOG_NAME, FILE_NAME, Shard, Stored

# Hashing and writing release the GIL, and wait for it again behind the readers: so seldom.
_CHUNK = 1 << 20
_SPACE = re.compile(rb"[\t\n\v\f\r ]")


class TarWriter:
    """A folder of shards; see :class:`fastdata.converters.writer.Writer`.

    Args:
        folder: An existing folder.
        shard_size: Bytes that a shard does not exceed, unless a single sample does.
    """

    def __init__(self, folder: Path, shard_size: int) -> None:
        self._folder = folder
        self._shard_size = shard_size
        self._shards: list[Shard] = []
        self._open: _Shard | None = None

    def append(self, item: Item) -> Placed:
        """Write the next sample: KEY.extension, KEY.cls, then KEY.field for each field."""
        members = {item.extension: item.image, "cls": b"%d" % item.label, **item.fields}
        headers = [
            member_header(item.key + b"." + ending.encode("ascii"), len(data))
            for ending, data in members.items()
        ]
        size = sum(
            len(header) + len(data) + len(padding(len(data)))
            for header, data in zip(headers, members.values(), strict=True)
        )
        shard = self._open
        if shard is not None and shard.bytes + size + len(END) > self._shard_size:
            self._close_shard()
            shard = None
        if shard is None:
            shard = self._open = _Shard(self._folder, len(self._shards))
        offsets = shard.write(item.key, headers, members)
        placed = {
            name: (offsets[name], len(data), crc32c(data)) for name, data in item.fields.items()
        }
        return Placed(len(self._shards), offsets[item.extension], placed)

    def finish(self) -> tuple[Shard, ...]:
        """Publishes the last shard."""
        if self._open is not None:
            self._close_shard()
        return tuple(self._shards)

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the catalog beside the shards."""
        return Stored(*catalog.write(self._folder / CATALOG_NAME))

    def publish(self, manifest: bytes) -> None:
        """Write dataset.json."""
        write_atomically(self._folder / FILE_NAME, manifest)

    def abort(self) -> None:
        """Remove the shard that is being written."""
        if self._open is not None:
            self._open.remove()
            self._open = None

    def _close_shard(self) -> None:
        assert self._open is not None
        self._shards.append(self._open.publish())
        self._open = None


class _Shard:
    """The shard that is being written, under a temporary name."""

    def __init__(self, folder: Path, number: int) -> None:
        self._path = folder / f"shard-{number:06d}.tar"
        self._tmp = temporary(self._path)
        self._file: BinaryIO = self._tmp.open("wb")
        self._pieces: list[bytes] = []
        self._flushed = 0
        self._digest = hashlib.sha256()
        self._index: list[bytes] = []
        self.bytes = 0

    def write(self, key: bytes, headers: list[bytes], members: Fields) -> dict[str, int]:
        """Write a sample's members; return the offset of each one's data by extension."""
        offsets = {}
        line = []
        for header, (extension, data) in zip(headers, members.items(), strict=True):
            self._put(header)
            offsets[extension] = self.bytes
            # DALI splits the line at white space and takes the name for its messages only.
            name = _SPACE.sub(b"_", key + b"." + extension.encode("ascii"))
            line.append(b"%b %d %d %b" % (extension.encode("ascii"), self.bytes, len(data), name))
            self._put(data)
            self._put(padding(len(data)))
        self._index.append(b" ".join(line))
        return offsets

    def publish(self) -> Shard:
        """End the archive and give it and its index their final names."""
        self._put(END)
        self._flush()
        sync(self._file)
        self._file.close()
        index = b"v1.2 %d\n%b\n" % (len(self._index), b"\n".join(self._index))
        # The index goes first: where the shard is, all of it is.
        write_atomically(self._path.with_suffix(".idx"), index)
        publish(self._tmp, self._path)
        return Shard(
            bytes=self.bytes,
            digest=f"sha256:{self._digest.hexdigest()}",
            name=self._path.name,
            samples=len(self._index),
            index=f"sha256:{hashlib.sha256(index).hexdigest()}",
        )

    def remove(self) -> None:
        """Close and remove the temporary file, whatever state it is in."""
        with suppress(OSError):  # it flushes, and fails again where a write failed
            self._file.close()
        self._tmp.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        self._pieces.append(data)
        self.bytes += len(data)
        if self.bytes - self._flushed >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._digest.update(data)
        self._file.write(data)
        self._pieces.clear()
        self._flushed = self.bytes
