"""Writes the catalog of a folder of shards anew, from the shards and what is left of it."""

import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fastdata.converters.sources.folder import scan
from fastdata.converters.tar.samples import Row, read_tar
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.catalog.format import PART_ROWS, ROW
from fastdata.dataset.manifest import CATALOG_NAME, Manifest, Shard, digest_text
from fastdata.errors import ShardError
from fastdata.system.untrusted import read_regular

_START = struct.Struct("<QII")  # of a row: offset, length, CRC32C
_MOST_TRIES = 16
_TEXT_END = 36  # where a row says where its text ends


def rebuild_catalog(
    folder: Path, manifest: Manifest, source: Path | None, wrong: set[str]
) -> CatalogBuilder | None:
    """The catalog of shards that are whole, if it comes out as the manifest states it.

    Original names are in the catalog alone: they are taken from what is left of it, from the
    source, or guessed from the keys.
    """
    for shard in manifest.shards:
        if shard.name in wrong:
            return None
    rows = read_rows(folder, [shard.name for shard in manifest.shards], manifest.fields)
    if rows is None:
        return None
    samples = [row for _, found in rows for row in found]
    shards = [number for number, (_, found) in enumerate(rows) for _ in found]
    for names in _candidates(_left_names(folder / CATALOG_NAME, samples), samples, source):
        builder = CatalogBuilder(manifest.fields)
        try:
            for row, name, number in zip(samples, names, shards, strict=True):
                builder.append(shard=number, **row._replace(name=name)._asdict())
        except ValueError:
            continue
        if digest_text(b"".join(builder.encode())) == manifest.catalog.digest:
            return builder
    return None


def _candidates(
    left: list[bytes], samples: list[Row], source: Path | None
) -> Iterator[list[bytes]]:
    """Yield what the original names may have been."""
    if left:
        yield left
        mended = [_mended(name, row.key) for name, row in zip(left, samples, strict=True)]
        yield mended
        endings = Counter(os.path.splitext(name)[1] for name in mended)
        common = endings.most_common(1)[0][0]
        odd = [place for place, name in enumerate(mended) if not name.endswith(common)]
        for place in odd[:_MOST_TRIES]:  # a damaged ending is one that no other name has
            name = mended[place][: len(samples[place].key)] + common
            yield [*mended[:place], name, *mended[place + 1 :]]
    if source is not None:
        yield _source_names(source, samples)
    yield [row.name for row in samples]
    for ending in (b".JPEG", b".jpeg", b".JPG"):
        yield [row.key + ending for row in samples]


def _left_names(path: Path, samples: list[Row]) -> list[bytes]:
    """Original names in what is left of a catalog, with damaged bytes; empty where it is lost."""
    try:
        data = read_regular(path)
    except OSError:
        return []
    starts = (
        (data.find(_START.pack(row.offset, row.length, row.crc)), place)
        for place, row in enumerate(samples[:8])
    )
    start = next((at - place * ROW.itemsize for at, place in starts if at > 0), -1)
    text = start + len(samples) * ROW.itemsize
    if start < 0 or text > len(data) or len(samples) > PART_ROWS:
        return []
    at = text
    names = []
    for place, row in enumerate(samples):
        at += len(row.key) + 1
        (end,) = struct.unpack_from("<I", data, start + place * ROW.itemsize + _TEXT_END)
        end += text
        if place + 1 < len(samples) and not data.startswith(samples[place + 1].key + b"\0", end):
            found = data.find(samples[place + 1].key + b"\0", at)
            end = end if found < 0 else found
        names.append(data[at:end])
        at = end
    return names


def _mended(name: bytes, key: bytes) -> bytes:
    """A name whose bytes are those of the key, but for dots that became underscores."""
    pairs = zip(name, key, strict=False)
    stem = bytes(a if (a, b) == (0x2E, 0x5F) else b for a, b in pairs)
    return stem + name[len(key) :] if len(name) >= len(key) else name


def _source_names(source: Path, samples: list[Row]) -> list[bytes]:
    """Original names by key, as the source has them."""
    listing = scan(source)
    names = {listing.key(place): listing.name(place) for place in range(len(listing))}
    return [names.get(row.key, row.name) for row in samples]


def read_rows(
    folder: Path, names: list[str], fields: tuple[str, ...]
) -> list[tuple[Shard, list[Row]]] | None:
    """What tars hold; None where one is damaged."""
    try:
        found = [read_tar(folder / name, fields) for name in names]
    except (ShardError, OSError):
        return None
    return [(indexed.shard, indexed.rows) for indexed in found]
