"""LMDB files of other tools, with one encoded image a key."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastdata.converters.sources.builder import Builder, Wanted
from fastdata.converters.sources.formats.table import missing_extra
from fastdata.converters.sources.listing import CHANGED, Unreadable, read_failure
from fastdata.converters.sources.records import Extent, RecordListing
from fastdata.errors import OptionError, ShardError, SourceError
from fastdata.images.probe import sniff

DATA_NAME = "data.mdb"
_HEAD = 16


def list_lmdb(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted
) -> RecordListing:
    """List the entries of an LMDB environment in the order of their keys.

    If the keys of all images are paths, such as ``dog/1.jpg``, their first part is the class.
    Entries that are no image by their first bytes are skipped.

    Raises:
        MissingExtraError: The package ``lmdb`` is not installed.
        OptionError: Columns or fields are wanted.
        SourceError: It cannot be opened, or holds no image.
        ShardError: It is truncated.
    """
    if wanted.columns or wanted.fields:
        raise OptionError(f"{root}: an LMDB with one image a key has neither columns nor fields")
    (path,) = paths
    store = _Environment(path)
    in_folders = all(b"/" in key.strip(b"/") for key, _, image in store.entries() if image)
    builder = Builder(root, inputs, store)
    for key, size, is_image in store.entries():
        if not is_image:
            builder.skip(os.fsdecode(key), "no image in this entry")
            continue
        label = key.strip(b"/").partition(b"/")[0] if in_folders else None
        extent = Extent(len(store.keys), size)
        store.keys.append(key)
        builder.add(key, extent, label, head=store.head(key))
    return builder.listing(wanted.classes)


class _Environment:
    """Values of an environment; see :class:`fastdata.converters.sources.records.Store`.

    Attributes:
        keys: Of the images; the offset of an extent is a place among them.
    """

    def __init__(self, path: Path) -> None:
        try:
            import lmdb
        except ImportError:
            raise missing_extra(str(path), "an LMDB of another tool", "lmdb") from None
        self.keys: list[bytes] = []
        self._path = path
        self._error: type[Exception] = lmdb.Error
        file = path / DATA_NAME if path.is_dir() else path
        try:
            self._env: Any = lmdb.open(
                os.fspath(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False
            )
            pages = self._env.info()["last_pgno"] + 1
            size = pages * self._env.stat()["psize"]
        except lmdb.Error as error:
            raise SourceError(f"{path}: cannot open this LMDB: {error}") from error
        found = file.stat().st_size
        if found < size:  # the library maps the file, and a read past its end kills the process
            raise ShardError(
                f"{file}: truncated: {found} bytes, its header states {size}; fetch it again"
            )

    def entries(self) -> Iterator[tuple[bytes, int, bool]]:
        """Key and size of every entry, and whether it begins as an image."""
        try:
            with self._env.begin(buffers=True) as transaction:
                for key, value in transaction.cursor():
                    yield bytes(key), len(value), bool(sniff(bytes(value[:_HEAD])))
        except self._error as error:
            raise ShardError(f"{self._path}: damaged: {error}; fetch it again") from error

    def fetch(self, extent: Extent) -> bytes | Unreadable:
        """The value of an image."""
        try:
            with self._env.begin() as transaction:
                data = transaction.get(self.keys[extent.offset])
        except self._error as error:
            return Unreadable(f"unreadable: {error}")
        except OSError as error:
            return Unreadable(read_failure(error))
        if data is None or len(data) != extent.size:
            return Unreadable(CHANGED)
        return bytes(data)

    def head(self, key: bytes) -> bytes:
        """The whole value, which tells the extension of its name."""
        with self._env.begin() as transaction:
            return bytes(transaction.get(key) or b"")
