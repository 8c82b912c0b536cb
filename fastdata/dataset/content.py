"""Whether a packed data set is, to the bit, what its manifest says; opening compares only sizes."""

import hashlib
import os
from collections.abc import Iterator

import numpy as np

from fastdata.dataset.catalog.format import PART_ROWS
from fastdata.dataset.lmdb.file import Lmdb
from fastdata.dataset.lmdb.format import CATALOG_KEY, part_key
from fastdata.dataset.manifest import CATALOG_NAME, MIXED, Shards, fingerprint, sha256_text
from fastdata.errors import CatalogError, ManifestError
from fastdata.system.untrusted import open_regular

_CHUNK = 1 << 20


def check_content(data: Shards | Lmdb) -> None:
    """Compare the catalog with the manifest to the bit, and its labels and shards with theirs.

    Raises:
        CatalogError: They are of different packs.
        ManifestError: The manifest does not describe what it names.
    """
    found, catalog = data.manifest, data.catalog
    digest = hashlib.sha256()
    for piece in _encoded_catalog(data):
        digest.update(piece)
    if sha256_text(digest.digest()) != found.catalog.digest:
        raise CatalogError(f"{data.path}: the catalog is not the one of the manifest; {MIXED}")
    labels = hashlib.sha256(catalog.column("label").astype("<i4").tobytes()).hexdigest()
    if fingerprint(found.classes, found.fields, found.shards, labels) != found.fingerprint:
        raise ManifestError(f"{data.path}: its fingerprint is not that of its content; {MIXED}")
    numbers = np.arange(len(found.shards)).repeat([shard.samples for shard in found.shards])
    if not np.array_equal(catalog.column("shard"), numbers):
        raise CatalogError(f"{data.path}: samples lie in other shards than stated; {MIXED}")


def _encoded_catalog(data: Shards | Lmdb) -> Iterator[bytes]:
    """Yield the bytes of the catalog, in an LMDB its entries end to end."""
    if isinstance(data, Lmdb):
        yield data.file.get(CATALOG_KEY) or b""
        for number in range(-(-len(data.catalog) // PART_ROWS)):
            yield data.file.get(part_key(number)) or b""
        return
    with open_regular(data.path / CATALOG_NAME) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        while piece := file.read(_CHUNK):
            yield piece
