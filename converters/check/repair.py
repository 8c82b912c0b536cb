"""Restores damaged samples and files to the bit: ``fastdata verify PATH --repair``."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from fastdata.converters.check.locate import read_content
from fastdata.converters.check.verify import verify
from fastdata.converters.check.verify_lmdb import leftovers, read_contents
from fastdata.converters.images.coding import Coding
from fastdata.converters.lmdb.pages import PageStream
from fastdata.converters.lmdb.tree import Leaves
from fastdata.converters.problems import CHUNK, Problem, Progress, digest_of, read_range
from fastdata.converters.tar.layout import Content, Entry, end_of, entries, index_of, pieces, tail
from fastdata.converters.tar.packed_folder import LEFTOVER, open_catalog, open_manifest, parts_of
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.lmdb.file import LMDBFile, check_seal, open_file, read_catalog, read_manifest
from fastdata.dataset.lmdb.format import FIRST, PAGE, sample_key
from fastdata.dataset.manifest import CATALOG_NAME, LOCK_NAME, Options, Shard, digest_text
from fastdata.errors import (
    CatalogError,
    DecodeError,
    DestinationError,
    ManifestError,
    NotADatasetError,
    ShardError,
)
from fastdata.system.files import Lock, fsync_folder, write_atomically
from fastdata.system.untrusted import open_regular


@dataclass(frozen=True)
class RepairReport:
    """What ``repair`` did.

    Attributes:
        fixed: What was restored, in words.
        remaining: What is still wrong.
    """

    fixed: tuple[str, ...]
    remaining: tuple[Problem, ...]


def repair(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> RepairReport:
    """Restore damaged files from the catalog and from the images that were packed.

    Tar headers, padding and index files follow from the catalog. Images and fields are read from
    ``source`` and re-encoded with the options of the pack. A shard, or a group of an LMDB, is
    replaced only by bytes that have the digest in the manifest; everything else stays as it is.

    Manifest and catalog, and the tree of an LMDB, must be whole: they are not rebuilt.
    :func:`fastdata.converters.check.index.index` makes new ones for tars.

    Args:
        path: A folder of shards, or an LMDB file.
        source: The image folder that was packed.
        progress: Called on this thread while the data set is verified, before and after.

    Raises:
        NotADatasetError: The path never was a packed data set, or ``source`` is no folder.
        DestinationError: The data set cannot be written.
        BusyError: Another process writes to it.
    """
    where = Path(os.path.realpath(path))
    root = None if source is None else Path(source)
    if root is not None and not root.is_dir():
        raise NotADatasetError(f"{root}: not a folder; give the one that was packed")
    wrong = {problem.file for problem in verify(where, progress).problems}
    if not wrong:
        return RepairReport((), ())
    is_folder = where.is_dir()
    lock = where / LOCK_NAME if is_folder else where.with_name(f"{where.name}.lock")
    work = _repair_folder if is_folder else _repair_lmdb
    try:
        with Lock(lock, str(where)):
            fixed = tuple(work(where, root, wrong))
    except OSError as error:
        raise DestinationError(f"{error.filename or where}: {error.strerror or error}") from error
    return RepairReport(fixed, verify(where, progress).problems)


def _repair_folder(folder: Path, source: Path | None, wrong: set[str]) -> Iterator[str]:
    manifest, catalog = open_manifest(folder)[0], open_catalog(folder)
    if manifest is None or catalog is None or CATALOG_NAME in wrong:
        return
    if len(catalog) != manifest.samples:  # crafted: no pack writes such a pair
        return
    originals = _Originals(source, manifest.options)
    for part in parts_of(manifest, catalog):
        assert part.shard is not None
        path = folder / part.name
        if part.name in wrong:
            taken = _restore_shard(path, part.shard, catalog, part.first, originals)
            if taken is not None:
                yield f"{part.name}: {_told(taken) or 'headers restored'}"
        index = path.with_suffix(".idx")
        if index.name in wrong:
            good = index_of(entries(catalog, part.first, part.samples))
            if good is not None and digest_text(good) == part.shard.index:
                write_atomically(index, good)
                yield f"{index.name}: restored"
    for name in sorted(os.listdir(folder)):
        if LEFTOVER.fullmatch(name):
            (folder / name).unlink()
            yield f"{name}: removed, an interrupted pack had left it"
    fsync_folder(folder)


def _repair_lmdb(path: Path, source: Path | None, wrong: set[str]) -> Iterator[str]:
    for left in leftovers(path):
        left.unlink()
        yield f"{left.name}: removed, an interrupted pack had left it"
    if path.name not in wrong or not path.exists():
        return
    with suppress(ShardError, ManifestError, CatalogError):
        check_seal(path)
        with closing(open_file(path)) as file:
            taken = _restore_groups(path, file, source)
            if taken is not None:
                yield f"{path.name}: {_told(taken) or 'pages restored'}"


def _told(keys: list[str]) -> str:
    return f"{len(keys)} samples restored from the source: {', '.join(keys)}" if keys else ""


class _Lost(Exception):  # noqa: N818 (not an error: it ends a write that cannot succeed)
    """Bytes that cannot be restored."""


class _Originals:
    """The folder that was packed, or none.

    Attributes:
        taken: Keys of the samples that were restored from it; a dict, because it keeps their order.
    """

    def __init__(self, root: Path | None, options: Options) -> None:
        self._root = root
        self._coding = Coding.from_options(options)
        self.taken: dict[str, None] = {}

    def restore(self, entry: Entry, content: Content) -> bytes:
        """The bytes of an image or a field.

        Raises:
            _Lost: The folder does not have exactly these.
        """
        data = self._find(entry, content)
        if data is None:
            raise _Lost
        self.taken[entry.key] = None
        return data

    def _find(self, entry: Entry, content: Content) -> bytes | None:
        name = entry.name
        # Names are data: a crafted catalog must not lead out of the folder.
        if self._root is None or name.startswith("/") or ".." in name.split("/"):
            return None
        if content.field is not None:
            name = f"{os.path.splitext(name)[0]}.{content.field}"
        try:
            with open_regular(self._root / name) as fd:
                data = read_range(fd, 0, os.fstat(fd).st_size)
        except (OSError, ValueError):
            return None
        if content.matches(data):
            return data
        if content.field is not None:
            return None
        try:
            coded = self._coding.code_file(data, entry.name).image
        except DecodeError:
            return None
        return coded if content.matches(coded) else None


def _restore_shard(
    path: Path, shard: Shard, catalog: Catalog, first: int, originals: _Originals
) -> list[str] | None:
    """Rewrite a shard; return the keys taken from the source, or None if it stays as it is."""
    originals.taken = {}
    with ExitStack() as stack:
        fd = None
        with suppress(OSError):
            fd = stack.enter_context(open_regular(path))

        def write(file: BinaryIO) -> None:
            digest = hashlib.sha256()
            for data in _shard_bytes(fd, entries(catalog, first, shard.samples), originals):
                digest.update(data)
                file.write(data)
            if f"sha256:{digest.hexdigest()}" != shard.digest:
                raise _Lost

        return _written(path, write, originals)


def _written(
    path: Path, write: Callable[[BinaryIO], None], originals: _Originals
) -> list[str] | None:
    try:
        write_atomically(path, write)
    except _Lost:
        return None
    return list(originals.taken)


def _shard_bytes(
    fd: int | None, samples: Iterator[Entry], originals: _Originals
) -> Iterator[bytes]:
    at = 0
    for entry in samples:
        found = pieces(entry, at)
        if found is None:  # another program laid it out: its headers are not known
            raise _Lost
        for piece in found:
            if piece.content is None:
                yield piece.known or b""
            else:
                data = None if fd is None else read_content(fd, piece.content)
                yield originals.restore(entry, piece.content) if data is None else data
        at = end_of(found)
    yield tail(at).known or b""


def _restore_groups(path: Path, file: LMDBFile, source: Path | None) -> list[str] | None:
    """Rewrite an LMDB file with new pages for the groups that are damaged.

    The pages of a group follow from its samples to the bit. So all others, and meta pages, tree,
    catalog and seal, which the seal covers, are copied.
    """
    manifest, catalog = read_manifest(file), read_catalog(file)
    originals = _Originals(source, manifest.options)
    firsts = accumulate((group.samples for group in manifest.shards), initial=0)

    def write(new: BinaryIO) -> None:
        with open_regular(path) as fd:
            at = FIRST * PAGE
            _copy(fd, 0, at, new)
            for group, first in zip(manifest.shards, firsts, strict=False):
                if digest_of(fd, at, group.bytes) == group.digest:
                    _copy(fd, at, group.bytes, new)
                else:
                    samples = entries(catalog, first, group.samples)
                    _write_group(file, group, at // PAGE, samples, originals, new)
                at += group.bytes
            _copy(fd, at, file.size - at, new)

    return _written(path, write, originals)


def _write_group(
    file: LMDBFile,
    group: Shard,
    page: int,
    samples: Iterator[Entry],
    originals: _Originals,
    new: BinaryIO,
) -> None:
    digest = hashlib.sha256()

    def send(parts: list[bytes], _: int) -> None:
        for part in parts:
            digest.update(part)
            new.write(part)

    stream = PageStream(send, Leaves(), 0, page)
    for entry in samples:
        good = read_contents(file, entry)
        found = tuple(
            good[content.field] if content.field in good else originals.restore(entry, content)
            for content in entry.contents
        )
        stream.put(sample_key(entry.number), sum(map(len, found)), found)
    stream.flush()
    if f"sha256:{digest.hexdigest()}" != group.digest:
        raise _Lost


def _copy(fd: int, start: int, size: int, new: BinaryIO) -> None:
    end = start + size
    new.writelines(read_range(fd, at, min(CHUNK, end - at)) for at in range(start, end, CHUNK))
