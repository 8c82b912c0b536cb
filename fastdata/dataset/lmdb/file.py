"""Reads a data set in one LMDB file page by page: without a map, an environment or a lock.

A sample's key is its id in 8 bytes, big-endian, so that keys sort as ids do. Its value is the
image, then each further field. Manifest and catalog have reserved keys, which sort after all ids.

Pages are read with pread, and every offset in them is checked. So a truncated or damaged file is an
error, not the signal that reading past the end of a map would be, and forks, threads and other
readers of the file do not matter.
"""

import hashlib
import os
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastdata.dataset import manifest
from fastdata.dataset.catalog.part import Read
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.lmdb.format import (
    ADVICE,
    CATALOG_KEY,
    FIRST,
    MANIFEST_KEY,
    PAGE,
    PAGE_HEADER,
    part_key,
)
from fastdata.dataset.lmdb.page import Node, Page
from fastdata.dataset.lmdb.seal import open_sealed, seal_text
from fastdata.errors import CatalogError, ManifestError, ShardError

_CHUNK = 1 << 20


class Span(NamedTuple):
    """Where a value lies in the file."""

    offset: int
    size: int


class Lmdb(NamedTuple):
    """A data set in an LMDB file."""

    path: Path
    manifest: manifest.Manifest
    catalog: Catalog
    file: "LMDBFile"


def open_lmdb(path: Path) -> Lmdb:
    """Open an LMDB file; its manifest and catalog must agree.

    Raises:
        NotADatasetError: There is no such file, or fastdata did not pack it.
        ManifestError: The manifest is damaged, or the pack unfinished.
        CatalogError: The catalog is damaged, or of another pack.
        ShardError: The file is truncated, extended, or its header is damaged.
    """
    file = open_file(path)
    try:
        found = read_manifest(file)
        catalog = read_catalog(file)
        manifest.refuse_other_catalog(path, found, catalog)
    except BaseException:
        file.close()
        raise
    return Lmdb(path, found, catalog, file)


def open_file(path: Path) -> "LMDBFile":
    """Open an LMDB file and check its beginning, its end and its size.

    Raises:
        NotADatasetError: There is no such file, or fastdata did not pack it.
        ManifestError: There is only an unfinished pack beside it.
        ShardError: It is truncated, extended, or its header or seal is damaged.
    """
    return LMDBFile(path)


def read_manifest(file: "LMDBFile") -> manifest.Manifest:
    """Read the manifest.

    Raises:
        ManifestError: It is missing, damaged, or not of this file.
        ShardError: Pages of the tree are damaged.
    """
    data = file.get(MANIFEST_KEY)
    if data is None:
        raise ManifestError(f"{file.path}: holds no manifest; {ADVICE}")
    found = manifest.parse(data, str(file.path))
    groups_end = FIRST * PAGE + sum(group.bytes for group in found.shards)
    if found.kind != "lmdb" or groups_end != file.groups_end:
        raise ManifestError(f"{file.path}: holds the manifest of another data set; {ADVICE}")
    return found


def read_catalog(file: "LMDBFile") -> Catalog:
    """Open the catalog, which reads its parts as they are needed.

    Raises:
        CatalogError: It is missing, or its header is damaged.
        ShardError: Pages of the tree are damaged.
    """
    header = file.get(CATALOG_KEY)
    if header is None:
        raise CatalogError(f"{file.path}: holds no catalog; {ADVICE}")

    def part(number: int) -> Read:
        span = file.find(part_key(number))
        if span is None:
            raise CatalogError(f"{file.path}: holds no catalog part {number}; {ADVICE}")

        def read(start: int, size: int) -> bytes:
            end = min(span.size, start + size)
            return file.read(span.offset + start, max(0, end - start))

        return read

    return Catalog.from_parts(header, part, str(file.path))


def check_seal(path: Path) -> None:
    """Check everything against the seal but the groups, whose digests the manifest has.

    Raises:
        ShardError: Meta pages, catalog, manifest, branch pages or seal are not as written.
        NotADatasetError: As :func:`open_file`.
        ManifestError: As :func:`open_file`.
    """
    file = open_file(path)
    try:
        digest = hashlib.sha256()
        # In this order the file can be hashed while it is written: the meta pages come last.
        for start in range(file.groups_end, file.pages * PAGE, _CHUNK):
            digest.update(file.read(start, min(_CHUNK, file.pages * PAGE - start)))
        digest.update(file.read(0, FIRST * PAGE))
        digest.update(seal_text(file.groups_end, file.size))
        if digest.digest() != file.digest:
            raise ShardError(f"{path}: catalog, manifest or tree do not match the seal; {ADVICE}")
    finally:
        file.close()


class LMDBFile:
    """Random access to the entries of one LMDB file; safe to use from many threads.

    Attributes:
        path: Its name.
        size: In bytes.
        pages: Number of its pages; the seal follows them.
        entries: Number of its entries.
        groups_end: Offset where the groups end, which begin after the meta pages.
        digest: The SHA-256 that the seal states.
    """

    def __init__(self, path: Path) -> None:
        """Use :func:`open_file`."""
        self.path = path
        self._guard = threading.Lock()
        fd, tree, seal = open_sealed(path)
        self._fd: int | None = fd
        self._closer = weakref.finalize(self, os.close, fd)
        self._tree = tree
        self.pages, self.entries = tree.pages, tree.entries
        self.groups_end, self.size, self.digest = seal

    def get(self, key: bytes) -> bytes | None:
        """Copy the value of a key, or return None if there is no such key.

        Raises:
            ShardError: The file is damaged, or cannot be read; so for all below.
        """
        span = self.find(key)
        return None if span is None else self.read(span.offset, span.size)

    def find(self, key: bytes) -> Span | None:
        """Find where the value of a key lies; None if there is no such key."""
        number = self._tree.root
        for _ in range(self._tree.depth):  # or a crafted tree could send us in a circle
            page = self._page(number)
            # The first key of a branch page is empty and means: less than the second.
            index = bisect_right(page, key, lo=0 if page.is_leaf else 1, key=_key) - 1
            if page.is_leaf:
                node = page[index] if index >= 0 else None
                return self._span(page, number, node) if node and node.key == key else None
            number = page[index].number
        raise ShardError(f"{self.path}: its tree is deeper than its header states; {ADVICE}")

    def walk(self) -> Iterator[tuple[bytes, Span]]:
        """Yield every key in order, and where its value lies."""
        last = b""
        for key, span in self._walk(self._tree.root, self._tree.depth):
            if key <= last:  # also ends a walk that a crafted tree leads in a circle
                raise ShardError(f"{self.path}: its keys are not in order; {ADVICE}")
            yield key, span
            last = key

    def read(self, offset: int, size: int) -> bytes:
        """Read this many bytes of the file."""
        try:
            data = os.pread(self._descriptor(), size, offset)
            while data and len(data) < size:  # a single read takes at most 2 GiB
                more = os.pread(self._descriptor(), size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise ShardError(f"{self.path}: cannot read: {error.strerror}") from error
        if len(data) < size:
            raise ShardError(f"{self.path}: was truncated while it was open; {ADVICE}")
        return data

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        with self._guard:
            self._closer()
            self._fd = None

    def _descriptor(self) -> int:
        fd = self._fd
        if fd is not None:  # without the lock, which every read would wait for
            return fd
        with self._guard:
            if self._fd is None:
                fd, *found = open_sealed(self.path)
                self._closer = weakref.finalize(self, os.close, fd)
                # Spans that are known already must still be those of this file.
                if found != [self._tree, (self.groups_end, self.size, self.digest)]:
                    self._closer()
                    raise ShardError(f"{self.path}: was replaced by another file; open it again")
                self._fd = fd
            return self._fd

    def _walk(self, number: int, levels: int) -> Iterator[tuple[bytes, Span]]:
        page = self._page(number)
        if page.is_leaf != (levels == 1):
            raise ShardError(f"{self.path}: its leaves are not on one level; {ADVICE}")
        for node in page:
            if page.is_leaf:
                yield node.key, self._span(page, number, node)
            else:
                yield from self._walk(node.number, levels - 1)

    def _page(self, number: int) -> Page:
        if not FIRST <= number < self.pages:
            raise ShardError(f"{self.path}: page {number} lies outside the file; {ADVICE}")
        return Page(self.read(number * PAGE, PAGE), number, str(self.path))

    def _span(self, page: Page, number: int, node: Node) -> Span:
        if not node.big:
            return Span(number * PAGE + node.start, node.number)
        first = page.first_overflow(node)
        span = Span(first * PAGE + PAGE_HEADER.size, node.number)
        if first < FIRST or span.offset + span.size > self.pages * PAGE:
            raise ShardError(f"{self.path}: page {number}: a value lies outside; {ADVICE}")
        return span


def _key(node: Node) -> bytes:
    return node.key
