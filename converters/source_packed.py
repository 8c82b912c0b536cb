"""A packed data set as a source: packed again, from tars to LMDB, back, or coded otherwise."""

import os
from pathlib import Path

import numpy as np

from fastdata import manifest
from fastdata.catalog import ABSENT, Catalog
from fastdata.converters.source_builder import Builder, Wanted
from fastdata.converters.source_records import Extent, Files, RecordListing
from fastdata.errors import CatalogError, SourceError
from fastdata.lmdb_file import open_file, read_catalog, read_manifest, sample_key
from fastdata.lmdb_format import ADVICE

_ROWS = 4096  # looked up at once


def list_packed(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted
) -> RecordListing:
    """List the samples of a packed data set, with their keys, names, labels, classes and fields.

    Images are checked against their CRC32C as they are read.

    Args:
        root: The data set, for errors.
        inputs: See :class:`RecordListing`.
        paths: The folder of shards, or the LMDB file, alone.
        wanted: What of it; columns mean nothing here.

    Raises:
        CorruptError: It is damaged.
        NotADatasetError: It was never one.
        SourceError: It lacks a field that is wanted.
    """
    (path,) = paths
    if path.is_dir():
        found, catalog = manifest.load(path), Catalog.from_file(path / manifest.CATALOG_NAME)
        store = Files([path / shard.name for shard in found.shards])
        starts = None
    else:
        found, catalog, starts = _open_lmdb(path)
        store = Files([path])
    names = [name for name in catalog.field_names if not wanted.fields or name in wanted.fields]
    if missing := set(wanted.fields) - set(names):
        raise SourceError(f"{path}: no field {missing.pop()!r} among {catalog.field_names}")
    builder = Builder(root, inputs, store, found.classes)
    for first in range(0, len(catalog), _ROWS):
        ids = np.arange(first, min(first + _ROWS, len(catalog)))
        rows = catalog.rows(ids).tolist()
        fields = {name: catalog.field(name, ids).tolist() for name in names}
        texts = zip(catalog.keys(ids), catalog.names(ids), strict=True)
        for place, ((key, name), row) in enumerate(zip(texts, rows, strict=True)):
            offset, length, crc, shard, label = row[:5]
            start, file = (0, shard) if starts is None else (starts[first + place], 0)
            further = {
                field: _extent(column[place], start, file)
                for field, column in fields.items()
                if column[place][0] != ABSENT
            }
            image = Extent(start + offset, length, crc, file)
            builder.add(name, image, label, further, key=os.fsencode(key))
    return builder.listing(wanted.classes)


def _extent(field: tuple[int, int, int], start: int, file: int) -> Extent:
    """Where a field lies, of its entry in the catalog."""
    offset, length, crc = field
    return Extent(start + offset, length, crc, file)


def _open_lmdb(path: Path) -> tuple[manifest.Manifest, Catalog, list[int]]:
    """Manifest, catalog, and where the value of each sample begins."""
    file = open_file(path)
    try:
        found = read_manifest(file)
        catalog = read_catalog(file)
        starts = []
        for number, (key, place) in enumerate(file.walk()):
            if number == len(catalog):
                break
            if key != sample_key(number):
                raise CatalogError(f"{path}: holds no sample {number}; {ADVICE}")
            starts.append(place.offset)
    finally:
        file.close()
    if len(starts) != len(catalog):
        raise CatalogError(f"{path}: {len(starts)} of {len(catalog)} samples; {ADVICE}")
    return found, catalog, starts
