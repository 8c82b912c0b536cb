"""Writes samples into one LMDB file, in the order of their ids."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from fastdata.catalog_builder import CatalogBuilder
from fastdata.checksum import crc32c
from fastdata.converters.writer import Item, Placed
from fastdata.files import publish, temporary
from fastdata.lmdb_file import CATALOG_KEY, MANIFEST_KEY, part_key, sample_key
from fastdata.manifest import Shard, Stored

# Entries are committed when they reach this size, and where a group ends: never by time, so that
# two packs of one source give the same bytes.
_COMMIT_BYTES = 16 << 20
_FIRST_MAP = 64 << 20
_MARGIN = 1 << 20  # pages of the tree and of the free list that one commit may rewrite


class LmdbWriter:
    """One LMDB file; see :class:`fastdata.converters.writer.Writer`.

    There are no shards in it; groups of consecutive entries stand for them, each with a digest.

    Args:
        path: The final name.
        shard_size: Bytes that the values of a group do not exceed, unless a single one does.
    """

    def __init__(self, path: Path, shard_size: int) -> None:
        self._path = path
        self._tmp = temporary(path)
        self._tmp.unlink(missing_ok=True)
        self._shard_size = shard_size
        self._groups: list[Shard] = []
        self._group = _Group()
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._samples = 0
        with _explained(path):
            # No writemap: with it a full disk ends in SIGBUS. No sync until the end: the file has
            # no name yet that anybody trusts.
            self._env = lmdb.open(
                os.fspath(self._tmp),
                subdir=False,
                map_size=_FIRST_MAP,
                lock=False,
                sync=False,
                metasync=False,
                mode=0o666,
            )

    def append(self, item: Item) -> Placed:
        """Write the next sample: its value is the image and the fields, end to end.

        Key, extension and label are in the catalog alone.
        """
        value = b"".join((item.image, *item.fields.values())) if item.fields else item.image
        if self._group.samples and self._group.bytes + len(value) > self._shard_size:
            self._close_group()
        self._group.add(value)
        self._put(sample_key(self._samples), value)
        self._samples += 1
        return Placed(len(self._groups), 0, _place(item))

    def finish(self) -> tuple[Shard, ...]:
        """Commit the last group."""
        if self._group.samples:
            self._close_group()
        return tuple(self._groups)

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the header and the parts of the catalog as entries."""
        digest = hashlib.sha256()
        size = 0
        keys = (CATALOG_KEY, *map(part_key, range(catalog.parts())))
        for key, piece in zip(keys, catalog.encode(), strict=True):
            digest.update(piece)
            size += len(piece)
            self._put(key, piece)
            self._commit()
        return Stored(size, f"sha256:{digest.hexdigest()}")

    def publish(self, manifest: bytes) -> None:
        """Write the manifest, put everything on the disk and give the file its name."""
        self._put(MANIFEST_KEY, manifest)
        self._commit()
        with _explained(self._path):
            size = (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
            self._env.close()
        with self._tmp.open("r+b") as file:
            # A page at the end that was freed again is never written: the file may be shorter
            # than its meta page says, and readers compare the two.
            file.truncate(size)
            os.fsync(file.fileno())
        publish(self._tmp, self._path)

    def abort(self) -> None:
        """Remove the file: nothing of it was published."""
        self._env.close()
        self._tmp.unlink(missing_ok=True)

    def _close_group(self) -> None:
        self._commit()
        self._groups.append(self._group.describe(len(self._groups)))
        self._group = _Group()

    def _put(self, key: bytes, value: bytes) -> None:
        self._pending.append((key, value))
        self._pending_bytes += len(value)
        if self._pending_bytes >= _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        with _explained(self._path):
            self._make_room()
            with self._env.begin(write=True) as transaction:
                for key, value in self._pending:
                    transaction.put(key, value, append=True)
        self._pending = []
        self._pending_bytes = 0

    def _make_room(self) -> None:
        """Grow the map, which bounds the file, ahead of a commit."""
        page = self._env.stat()["psize"]
        info = self._env.info()
        used = (info["last_pgno"] + 1) * page
        needed = used + self._pending_bytes + 2 * page * len(self._pending) + _MARGIN
        size = info["map_size"]
        while size < needed:
            size *= 2
        if size > info["map_size"]:
            self._env.set_mapsize(size)


class _Group:
    """Consecutive entries that share a digest."""

    def __init__(self) -> None:
        self.samples = 0
        self.bytes = 0
        self._digest = hashlib.sha256()

    def add(self, value: bytes) -> None:
        """Count the next entry."""
        self.samples += 1
        self.bytes += len(value)
        self._digest.update(value)

    def describe(self, number: int) -> Shard:
        """What the manifest says of this group."""
        digest = f"sha256:{self._digest.hexdigest()}"
        return Shard(self.bytes, digest, f"group-{number:06d}", self.samples, None)


def _place(item: Item) -> dict[str, tuple[int, int, int]]:
    """Where the fields lie within a value."""
    placed = {}
    offset = len(item.image)
    for name, data in item.fields.items():
        placed[name] = (offset, len(data), crc32c(data))
        offset += len(data)
    return placed


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """LMDB's errors as the system's, which they mostly are: a full disk, a file too large."""
    try:
        yield
    except lmdb.Error as error:
        number = errno.ENOSPC if isinstance(error, lmdb.DiskError) else errno.EIO
        raise OSError(number, str(error), os.fspath(path)) from error
