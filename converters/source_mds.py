"""MosaicML's MDS shards, of version 2, read without its package: that one weighs gigabytes.

A shard is the number n of samples (u32), n + 1 offsets (u32), a JSON header, and the samples; a
sample is a u32 for the size of each column without a fixed one, then the columns end to end
(streaming/base/format/mds/reader.py).
"""

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastdata.checksum import crc32c
from fastdata.converters.problems import read_range
from fastdata.converters.source_builder import Builder, Wanted
from fastdata.converters.source_columns import Columns, as_field, as_name
from fastdata.converters.source_records import Extent, Files, RecordListing
from fastdata.errors import OptionError, ShardError, SourceError
from fastdata.files import open_regular

INDEX_NAME = "index.json"

_IMAGES = ("jpeg", "png", "bytes")
_NUMBERS = {
    "int": "<i8",
    **{f"int{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    **{f"uint{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": f"<f{size}" for size in (2, 4, 8)},
}
_TEXTS = ("str", "str_int", "str_float", "str_decimal", "json")


class _Shard(NamedTuple):
    """What the index says of a shard."""

    path: Path
    samples: int
    bytes: int
    columns: dict[str, tuple[str, int | None]]  # encoding and fixed size by name


def list_mds(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted
) -> RecordListing:
    """List the samples of MDS shards that are not compressed; every byte is read once.

    Images are columns of encoding ``jpeg``, ``png`` or ``bytes``.

    Args:
        root: The source, for errors.
        inputs: See :class:`RecordListing`.
        paths: The folder that holds ``index.json``, alone.
        wanted: Columns, fields, classes.

    Raises:
        SourceError: There is no index that can be read, no column of images, or the shards have
            different columns, or are compressed.
        ShardError: A shard is not as the index says.
    """
    (folder,) = paths
    shards = _shards(folder)
    first = shards[0]
    for shard in shards:
        if shard.columns != first.columns:
            raise SourceError(
                f"{shard.path}: its columns are {shard.columns}, those of {first.path} are "
                f"{first.columns}; pack shards of one schema"
            )
    images = tuple(name for name, (encoding, _) in first.columns.items() if encoding in _IMAGES)
    columns = Columns(root, first.columns, wanted, images)
    for name in columns.all():
        encoding = first.columns[name][0]
        if name == columns.image and encoding not in _IMAGES:
            raise OptionError(
                f"{root}: column {name!r} of encoding {encoding} holds no encoded image; pack it "
                "with fastdata.pack(StreamingDataset(...), dst)"
            )
        if encoding not in (*_IMAGES, *_TEXTS, *_NUMBERS):
            raise OptionError(f"{root}: column {name!r} of encoding {encoding} cannot be read")
    builder = Builder(root, inputs, Files([shard.path for shard in shards]))
    for file, shard in enumerate(shards):
        for offset, data in _samples(shard):
            parts = _parts(shard, offset, data)
            values = {
                name: _decode(first.columns[name][0], data[slice(*parts[name])])
                for name in columns.all()
                if name != columns.image
            }
            start, end = parts[columns.image]
            builder.add(
                as_name(values[columns.key]) if columns.key else None,
                Extent(offset + start, end - start, crc32c(data[start:end]), file),
                values[columns.label] if columns.label else None,
                {
                    field: as_field(values[name], str(shard.path))
                    for field, name in columns.fields.items()
                },
                head=data[start:end],
            )
    return builder.listing(wanted.classes)


def is_index(data: bytes) -> bool:
    """Whether an ``index.json`` is one of MDS shards."""
    try:
        return bool(json.loads(data)["shards"][0]["format"] == "mds")
    except (ValueError, LookupError, TypeError):
        return False


def _shards(folder: Path) -> list[_Shard]:
    file = folder / INDEX_NAME
    try:
        listed = json.loads(file.read_bytes())["shards"]
        shards = [_shard(file, shard) for shard in listed]
    except OSError as error:
        raise SourceError(f"{file}: cannot read the index: {error.strerror}") from error
    except (ValueError, LookupError, TypeError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{file}: not an index of MDS shards: {error!r}") from None
    if not shards:
        raise SourceError(f"{file}: names no shard")
    return shards


def _shard(index: Path, stated: Any) -> _Shard:
    if stated["format"] != "mds" or stated["version"] != 2:
        raise SourceError(f"{index}: shards of {stated['format']} {stated['version']}, not mds 2")
    name, size = stated["raw_data"]["basename"], int(stated["raw_data"]["bytes"])
    parts = Path(name).parts
    if not parts or os.path.isabs(name) or ".." in parts or "\0" in name:
        raise SourceError(f"{index}: a shard cannot be called {name!r}")
    path = index.parent / name
    if stated["zip_data"] is not None and not path.exists():
        raise SourceError(
            f"{index}: {name} is there only compressed ({stated['compression']}); decompress it "
            "under that name, or pack fastdata.pack(StreamingDataset(...), dst)"
        )
    sizes = [None if fixed is None else int(fixed) for fixed in stated["column_sizes"]]
    if any(fixed is not None and fixed < 1 for fixed in sizes):
        raise SourceError(f"{index}: columns of {name} cannot have sizes {sizes}")
    encodings = zip(stated["column_encodings"], sizes, strict=True)
    columns = zip(map(str, stated["column_names"]), encodings, strict=True)
    return _Shard(path, int(stated["samples"]), size, dict(columns))


def _samples(shard: _Shard) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each sample."""
    try:
        with open_regular(shard.path) as fd:
            size, head = os.fstat(fd).st_size, 4 * (shard.samples + 2)
            if size != shard.bytes or not 8 <= head <= size:
                text = f"{size} bytes in place of {shard.bytes}"
                raise ShardError(f"{shard.path}: {text}; fetch it again")
            count, *offsets = np.frombuffer(read_range(fd, 0, head), "<u4").tolist()
            if count != shard.samples or offsets != sorted(offsets) or offsets[-1] != size:
                raise ShardError(f"{shard.path}: its offsets are damaged; fetch it again")
            for start, end in pairwise(offsets):
                yield start, read_range(fd, start, end - start)
    except OSError as error:
        raise ShardError(f"{shard.path}: cannot read this file: {error.strerror}") from error


def _parts(shard: _Shard, offset: int, data: bytes) -> dict[str, tuple[int, int]]:
    """Where the value of each column lies within a sample."""
    open_ended = sum(not size for _, size in shard.columns.values())
    stated = iter(np.frombuffer(data[: 4 * open_ended], "<u4").tolist())
    at, found = 4 * open_ended, {}
    for name, (_, fixed) in shard.columns.items():
        size = fixed or next(stated, 0)
        found[name] = (at, at + size)
        at += size
    if at != len(data):
        raise ShardError(
            f"{shard.path}: the sample at byte {offset} has {len(data)} bytes, its columns {at}; "
            "fetch it again"
        )
    return found


def _decode(encoding: str, data: bytes) -> Any:
    if encoding in _NUMBERS:
        return np.frombuffer(data, _NUMBERS[encoding])[0].item()
    return data.decode("utf-8", "surrogateescape") if encoding in _TEXTS else data
