"""Writes samples into one LMDB file from front to back, in the order of their ids.

No LMDB library is used. Entries that come sorted need no rebalancing, and pages that are never
rewritten can be hashed as they are written, are the same on every machine, and stay good up to the
last finished group if the pack is interrupted.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from fastdata.converters.destination import Item, Placed
from fastdata.converters.journal import Journal
from fastdata.converters.lmdb.pages import PageStream
from fastdata.converters.lmdb.tree import find_leaves
from fastdata.converters.stages import Sink
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.lmdb.format import (
    CATALOG_KEY,
    FIRST,
    MANIFEST_KEY,
    MAX_VALUE,
    PAGE,
    Tree,
    encode_metas,
    part_key,
    sample_key,
)
from fastdata.dataset.lmdb.seal import SEAL, Seal, encode_seal, seal_text
from fastdata.dataset.manifest import Shard, Stored, sha256_text
from fastdata.errors import DestinationError
from fastdata.system.checksum import crc32c
from fastdata.system.files import (
    create,
    fsync_folder,
    open_own,
    own_size,
    publish,
    temporary,
    write_all,
)


def whole_groups(path: Path, groups: tuple[Shard, ...]) -> int:
    """Count the groups in the journal that an unfinished LMDB file holds completely.

    Args:
        path: The final name of the file.
        groups: The journal's.
    """
    size = own_size(temporary(path)) or 0
    end = FIRST * PAGE
    for count, group in enumerate(groups):
        end += group.bytes
        if end > size:
            return count
    return len(groups)


class LmdbWriter:
    """One LMDB file; see :class:`fastdata.converters.destination.Writer`.

    Groups of consecutive entries take the place of shards, each with the digest of its pages.

    Args:
        path: The final name.
        shard_size: Bytes that the pages of a group do not exceed, unless a single entry does.
        journal: Where finished groups are recorded; it was begun.
        done: Groups that are finished already; this writer continues after them.

    Raises:
        ShardError: The groups that are there are damaged.
    """

    def __init__(
        self, path: Path, shard_size: int, journal: Journal, done: tuple[Shard, ...] = ()
    ) -> None:
        self.sink = Sink()
        self._path = path
        self._tmp = temporary(path)
        self._shard_size = shard_size
        self._journal = journal
        self._number = len(done)
        self._samples = 0  # in the open group
        self._start = FIRST + sum(group.bytes for group in done) // PAGE  # of the open group
        self._fd = open_own(self._tmp, os.O_RDWR) if done else create(self._tmp)
        # Only the sink's thread touches these.
        self._groups = list(done)
        self._digest = hashlib.sha256()
        try:
            entries = sum(group.samples for group in done)
            leaves = find_leaves(self._fd, self._tmp, self._start, entries)
            # Pages after the last group in the journal belong to a group that was not finished.
            os.ftruncate(self._fd, self._start * PAGE)
            os.lseek(self._fd, self._start * PAGE, os.SEEK_SET)
        except BaseException:
            os.close(self._fd)
            raise
        self._pages = PageStream(self._send, leaves, entries, self._start)

    def append(self, item: Item, note: Callable[[], bytes] | None = None) -> Placed:
        """Write the next sample: its value is the image and the fields, end to end.

        Extension, label and the sample's own key are in the catalog alone.

        Raises:
            DestinationError: It is too large for an LMDB.
        """
        key, size = sample_key(self._pages.entries), _value_bytes(item)
        if note and self._samples:
            end = self._pages.end_with(key, size)
            if (end - self._start) * PAGE > self._shard_size:
                self.end_shard(note())
        if size > MAX_VALUE:
            raise DestinationError(
                f"{self._path}: sample {item.key!r} has {size} bytes, an entry of an LMDB holds at "
                f"most {MAX_VALUE}; pack into a folder of shards"
            )
        self._pages.put(key, size, (item.image, *item.fields.values()))
        self._samples += 1
        return Placed(self._number, 0, _place(item))

    def end_shard(self, note: bytes) -> None:
        """End the leaf; the sink then syncs the group and records it."""
        if self._samples:
            self._pages.flush()
            size = (self._pages.end - self._start) * PAGE
            self.sink.put(partial(self._end_group, self._samples, size, note), len(note))
            self._number += 1
            self._start = self._pages.end
            self._samples = 0

    def finish(self) -> tuple[Shard, ...]:
        """Wait for the last group."""
        self.sink.join()
        return tuple(self._groups)

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the header and the parts of the catalog as entries."""
        digest = hashlib.sha256()
        size = 0
        keys = (CATALOG_KEY, *map(part_key, range(catalog.parts())))
        for key, piece in zip(keys, catalog.encode(), strict=True):
            digest.update(piece)
            size += len(piece)
            self._pages.put(key, len(piece), (piece,))
        return Stored(size, sha256_text(digest.digest()))

    def publish(self, manifest: bytes) -> None:
        """Write manifest and tree, put everything on the disk, give the file its name."""
        self._pages.put(MANIFEST_KEY, len(manifest), (manifest,))
        tree = self._pages.finish()
        self.sink.put(partial(self._close, tree))
        self.sink.join()
        self.sink.close()
        publish(self._path)

    def abort(self) -> None:
        """Remove the file, unless it holds finished groups."""
        self.sink.close()
        with suppress(OSError):
            os.close(self._fd)
        if not self._groups:
            self._tmp.unlink(missing_ok=True)

    def _send(self, pieces: list[bytes], size: int) -> None:
        self.sink.put(partial(self._write, pieces), size)

    def _write(self, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        self._digest.update(data)
        write_all(self._fd, data)

    def _end_group(self, samples: int, size: int, note: bytes) -> None:
        digest = sha256_text(self._digest.digest())
        self._digest = hashlib.sha256()
        group = Shard(size, digest, f"group-{len(self._groups):06d}", samples, None)
        os.fsync(self._fd)
        if not self._groups:
            fsync_folder(self._tmp.parent)  # or a power cut could lose the name
        self._journal.append(group, note)
        self._groups.append(group)

    def _close(self, tree: Tree) -> None:
        """Write the seal and the meta pages, which complete the file."""
        metas = encode_metas(tree)
        groups_end = FIRST * PAGE + sum(group.bytes for group in self._groups)
        size = tree.pages * PAGE + SEAL.size
        self._digest.update(metas + seal_text(groups_end, size))
        write_all(self._fd, encode_seal(Seal(groups_end, size, self._digest.digest()), metas))
        # The meta pages come last: without them no library takes the file for an LMDB.
        os.lseek(self._fd, 0, os.SEEK_SET)
        write_all(self._fd, metas)
        os.fsync(self._fd)
        fd, self._fd = self._fd, -1
        os.close(fd)


def _value_bytes(item: Item) -> int:
    return len(item.image) + sum(map(len, item.fields.values()))


def _place(item: Item) -> dict[str, tuple[int, int, int]]:
    """Where the fields lie within a value."""
    placed = {}
    offset = len(item.image)
    for name, data in item.fields.items():
        placed[name] = (offset, len(data), crc32c(data))
        offset += len(data)
    return placed
