"""A packed data set as a source: tars repacked as LMDB, or the reverse, or with other options."""

import os
from pathlib import Path

import numpy as np

from fastdata.converters.sources.builder import Builder, Wanted
from fastdata.converters.sources.records import Extent, Files, RecordListing
from fastdata.dataset.catalog.format import ABSENT
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.content import check_content
from fastdata.dataset.lmdb.file import Span, open_lmdb
from fastdata.dataset.lmdb.format import ADVICE, sample_key
from fastdata.dataset.manifest import Manifest, Shards, open_shards
from fastdata.errors import CatalogError, CorruptError, NotADatasetError, SourceError

_ROWS = 4096  # looked up at once


def list_packed(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted
) -> RecordListing:
    """List the samples of a packed data set, with their keys, names, labels, classes and fields.

    Each image is checked against its CRC32C when it is read.

    Raises:
        CorruptError: It is damaged.
        NotADatasetError: It never was one.
        SourceError: It lacks a field that is wanted.
    """
    (path,) = paths
    if path.is_dir():
        data = _open_folder(path)
        found, catalog = data.manifest, data.catalog
        store = Files([path / shard.name for shard in found.shards])
        places = None
    else:
        found, catalog, places = _open_lmdb(path)
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
            if places is None:
                where, file = Span(0, found.shards[shard].bytes), shard
            else:
                where, file = places[first + place], 0
            further = {
                field: _extent(column[place], where, file, path)
                for field, column in fields.items()
                if column[place][0] != ABSENT
            }
            image = _extent((offset, length, crc), where, file, path)
            builder.add(name, image, label, further, key=os.fsencode(key))
    return builder.listing(wanted.classes)


def _extent(content: tuple[int, int, int], where: Span, file: int, path: Path) -> Extent:
    """Where an image or a field lies, of its entry in the catalog."""
    offset, length, crc = content
    if offset + length > where.size:
        raise CatalogError(f"{path}: the catalog places a sample outside of its shard")
    return Extent(where.offset + offset, length, crc, file)


def _open_folder(path: Path) -> Shards:
    try:
        data = open_shards(path)
        check_content(data)
    except (CorruptError, NotADatasetError) as error:
        raise type(error)(
            f"{error} (`fastdata index {path}` makes a new manifest and catalog for the tars; "
            "--from webdataset packs the tars without them: classes may lose their names)"
        ) from error
    return data


def _open_lmdb(path: Path) -> tuple[Manifest, Catalog, list[Span]]:
    """Manifest, catalog, and where the value of each sample lies."""
    data = open_lmdb(path)
    try:
        check_content(data)
        places = []
        for number, (key, place) in enumerate(data.file.walk()):
            if number == len(data.catalog):
                break
            if key != sample_key(number):
                raise CatalogError(f"{path}: holds no sample {number}; {ADVICE}")
            places.append(place)
    finally:
        data.file.close()
    if len(places) != len(data.catalog):
        raise CatalogError(f"{path}: {len(places)} of {len(data.catalog)} samples; {ADVICE}")
    return data.manifest, data.catalog, places
