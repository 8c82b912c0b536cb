"""A packed data set is opened here: its manifest, catalog and shards must belong together."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastdata.dataset import manifest
from fastdata.dataset.catalog.format import PART_ROWS
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.lmdb.file import LMDBFile, open_file, read_catalog, read_manifest
from fastdata.dataset.lmdb.format import CATALOG_KEY, part_key
from fastdata.dataset.manifest import CATALOG_NAME, Manifest
from fastdata.errors import CatalogError, ManifestError, ShardError
from fastdata.system.untrusted import open_regular

_CHUNK = 1 << 20
_MIXED = "they are of different packs; restore the files of one"


class Shards(NamedTuple):
    """A folder of shards."""

    path: Path
    manifest: Manifest
    catalog: Catalog

    def encoded_catalog(self) -> Iterator[bytes]:
        """Yield the bytes of the catalog."""
        with (
            open_regular(self.path / CATALOG_NAME) as fd,
            os.fdopen(fd, "rb", closefd=False) as file,
        ):
            while piece := file.read(_CHUNK):
                yield piece


class Lmdb(NamedTuple):
    """An LMDB file."""

    path: Path
    manifest: Manifest
    catalog: Catalog
    file: LMDBFile

    def encoded_catalog(self) -> Iterator[bytes]:
        """Yield the bytes of the catalog."""
        yield self.file.get(CATALOG_KEY) or b""
        for number in range(-(-len(self.catalog) // PART_ROWS)):
            yield self.file.get(part_key(number)) or b""


def open_shards(folder: Path) -> Shards:
    """Open a folder of shards and compare manifest, catalog and shards by their sizes.

    Raises:
        NotADatasetError: The path is no folder of shards.
        ManifestError: The manifest is damaged, or the pack unfinished.
        CatalogError: The catalog is damaged, or of another pack.
        ShardError: A shard is missing or of another size.
    """
    found = manifest.load(folder)
    if found.kind != "tar":
        raise ManifestError(f"{folder}: the manifest is one of an LMDB, not of shards")
    path = folder / CATALOG_NAME
    catalog = Catalog.from_file(path)
    _check_same(folder, found, catalog)
    size = path.stat().st_size
    if size != found.catalog.bytes:
        raise CatalogError(
            f"{path}: {size} bytes, the manifest states {found.catalog.bytes}; {_MIXED}"
        )
    for shard in found.shards:
        _check_size(folder / shard.name, shard.bytes)
    return Shards(folder, found, catalog)


def open_lmdb(path: Path) -> Lmdb:
    """Open an LMDB file, and compare its manifest with its catalog.

    Raises:
        NotADatasetError: There is no such file, or it was never ours.
        ManifestError: The manifest is damaged, or the pack unfinished.
        CatalogError: The catalog is damaged, or of another pack.
        ShardError: The file is truncated, extended, or its header is damaged.
    """
    file = open_file(path)
    try:
        found = read_manifest(file)
        catalog = read_catalog(file)
        _check_same(path, found, catalog)
    except BaseException:
        file.close()
        raise
    return Lmdb(path, found, catalog, file)


def check_content(data: Shards | Lmdb) -> None:
    """Read the catalog and compare it with the manifest to the bit, labels and places included.

    Raises:
        CatalogError: They are of different packs.
        ManifestError: The manifest does not describe what it names.
    """
    found, catalog = data.manifest, data.catalog
    digest = hashlib.sha256()
    for piece in data.encoded_catalog():
        digest.update(piece)
    if f"sha256:{digest.hexdigest()}" != found.catalog.digest:
        raise CatalogError(f"{data.path}: the catalog is not the one of the manifest; {_MIXED}")
    labels = catalog.column("label")
    text = hashlib.sha256(labels.astype("<i4").tobytes()).hexdigest()
    if manifest.fingerprint(found.classes, found.fields, found.shards, text) != found.fingerprint:
        raise ManifestError(f"{data.path}: its fingerprint is not that of its content; {_MIXED}")
    numbers = np.arange(len(found.shards)).repeat([shard.samples for shard in found.shards])
    if not np.array_equal(catalog.column("shard"), numbers):
        raise CatalogError(f"{data.path}: samples lie in other shards than stated; {_MIXED}")


def _check_same(path: Path, found: Manifest, catalog: Catalog) -> None:
    if len(catalog) != found.samples or catalog.field_names != found.fields:
        raise CatalogError(
            f"{path}: the catalog holds {len(catalog)} samples with fields "
            f"{catalog.field_names}, the manifest states {found.samples} with "
            f"{found.fields}; they are of different packs"
        )


def _check_size(path: Path, size: int) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        raise ShardError(
            f"{path}: the shard cannot be read ({error.strerror}); restore it, or pack again"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise ShardError(f"{path}: the shard is not a regular file; restore it, or pack again")
    if status.st_size != size:
        raise ShardError(
            f"{path}: {status.st_size} bytes, the manifest states {size}; restore it, or pack again"
        )
