"""A data set in one LMDB file: its keys, and one environment a process and file.

A sample's key is its id in 8 bytes, big-endian, so that keys sort as ids do; its value is the
image and after it each further field. Manifest and catalog lie under reserved keys, which sort
behind all ids.

py-lmdb refuses to open a file twice in one process, and an environment must not be used in a forked
child, which inherits that refusal. So environments live here, one a file: they are opened when they
are first read, closed before a fork, and opened anew afterwards in parent and child.
"""

import os
import struct
import threading
import weakref
from pathlib import Path

import lmdb

from fastdata import manifest
from fastdata.errors import NotADatasetError, ShardError

MANIFEST_KEY = b"fastdata:manifest"
CATALOG_KEY = b"fastdata:catalog"

# Of a meta page: the page header, then magic, version, address and size of the map, two MDB_db of
# which the first starts with the page size, the last page and the number of the transaction.
_META = struct.Struct("<QHHI II8x8x I44x 48x QQ")
_PAGE_IS_META = 0x08
_MAGIC = 0xBEEFC0DE
_VERSION = 1

_guard = threading.RLock()
_files: "weakref.WeakValueDictionary[tuple[int, int], LMDBFile]" = weakref.WeakValueDictionary()


def sample_key(number: int) -> bytes:
    """Key of a sample by its id."""
    return number.to_bytes(8, "big")


def part_key(number: int) -> bytes:
    """Key of a part of the catalog."""
    return b"%b:%08d" % (CATALOG_KEY, number)


def open_file(path: Path) -> "LMDBFile":
    """The one reader of an LMDB file in this process.

    Raises:
        NotADatasetError: There is no such file, or it is no LMDB.
        ManifestError: There is none yet, but an unfinished pack beside it.
        ShardError: The file is shorter than its own header states.
    """
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise manifest.absent(path) from None
    except OSError as error:
        raise NotADatasetError(f"{path}: cannot open: {error.strerror}") from error
    check_size(path)
    with _guard:
        file = _files.get((stat.st_dev, stat.st_ino))
        if file is None:
            file = _files[stat.st_dev, stat.st_ino] = LMDBFile(path)
        return file


def read_manifest(file: "LMDBFile") -> manifest.Manifest:
    """The manifest of a data set in an LMDB file.

    Raises:
        NotADatasetError: The file is an LMDB that fastdata did not write.
        ManifestError: The manifest is damaged.
        ShardError: The file holds more than its pages.
    """
    data = file.get(MANIFEST_KEY)
    if data is None:
        raise NotADatasetError(f"{file.path}: an LMDB file, but not one that fastdata packed")
    found = manifest.parse(data, str(file.path))
    size, stated = file.path.stat().st_size, _stated_size(file.path)
    if size != stated:  # other programs may leave spare pages, we do not
        raise ShardError(
            f"{file.path}: {size} bytes, its header states {stated}; restore the file, or pack "
            "again with --overwrite"
        )
    return found


def check_size(path: Path) -> None:
    """Check that an LMDB file holds all the pages that it states.

    Reading past the end of a mapped file kills the process (SIGBUS), so this comes before mapping.

    Raises:
        NotADatasetError: The file is no LMDB of a version that is known.
        ShardError: It is truncated.
    """
    try:
        size, stated = path.stat().st_size, _stated_size(path)
    except OSError as error:
        raise NotADatasetError(f"{path}: cannot read: {error.strerror}") from error
    if size < stated:
        raise ShardError(
            f"{path}: truncated: {size} bytes, its header states {stated}; restore the file, or "
            "pack again with --overwrite"
        )


class LMDBFile:
    """Random access to the values of one LMDB file; safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        """Use :func:`open_file`; nothing is opened before the first read."""
        self.path = path
        self._environment: lmdb.Environment | None = None
        self._transaction: lmdb.Transaction | None = None

    def get(self, key: bytes) -> bytes | None:
        """Copy of the value, or None where there is no such key.

        Raises:
            ShardError: LMDB finds the file damaged.
        """
        with _guard:
            try:
                value = self._reader().get(key)
            except lmdb.Error as error:
                raise ShardError(f"{self.path}: LMDB cannot read: {error}") from error
        return None if value is None else bytes(value)

    def close(self) -> None:
        """Close the environment; the next read opens it again."""
        with _guard:
            if self._transaction is not None:
                self._transaction.abort()
            if self._environment is not None:
                self._environment.close()
            self._transaction = self._environment = None

    def _reader(self) -> lmdb.Transaction:
        if self._transaction is None:
            check_size(self.path)
            self._environment = lmdb.open(
                str(self.path),
                subdir=False,
                readonly=True,
                lock=False,
                readahead=False,
                create=False,
                max_spare_txns=1,
            )
            self._transaction = self._environment.begin()
        return self._transaction


def _stated_size(path: Path) -> int:
    """Bytes up to the end of the last page that the newer of the two meta pages states."""
    with path.open("rb") as file:
        first = file.read(_META.size)
        page_size = _page(first)[1]
        if not 512 <= page_size <= 65536:
            raise NotADatasetError(f"{path}: not an LMDB file, or of an unknown version")
        file.seek(page_size)
        second = file.read(_META.size)
    if len(second) < _META.size:
        return 2 * page_size
    last_page, _, _ = max((_page(first), _page(second)), key=lambda page: page[2])
    return (last_page + 1) * page_size


def _page(data: bytes) -> tuple[int, int, int]:
    """(last page, page size, transaction number) of a meta page; zeros where it is none."""
    if len(data) < _META.size:
        return 0, 0, 0
    _, _, flags, _, magic, version, page_size, last_page, transaction = _META.unpack(data)
    if magic != _MAGIC or version != _VERSION or not flags & _PAGE_IS_META:
        return 0, 0, 0
    return last_page, page_size, transaction


def _before_fork() -> None:
    _guard.acquire()
    for file in list(_files.values()):
        file.close()


# The lock is re-entrant and the child's one thread is the one that took it, so both may release.
os.register_at_fork(
    before=_before_fork, after_in_parent=_guard.release, after_in_child=_guard.release
)
