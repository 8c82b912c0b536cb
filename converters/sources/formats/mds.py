"""MosaicML's MDS shards, version 2.

Its package installs a hundred others, unpickles columns, and gives decoded images in place of
their bytes; so this reads the format itself. A shard is the number n of samples (u32), n + 1
offsets (u32), a JSON header, and the samples; a sample is a u32 for the size of each column without
a fixed one, then the columns end to end (streaming/base/format/mds/reader.py).
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastdata.converters.problems import read_range
from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import Columns
from fastdata.converters.sources.formats.table import Row, Stored, Table, list_table
from fastdata.converters.sources.records import Files, RecordListing
from fastdata.errors import OptionError, ShardError, SourceError
from fastdata.system.untrusted import JsonFields, open_regular, read_json, read_regular

INDEX_NAME = "index.json"
_ADVICE = "it is no index of MDS shards, or damaged; fetch it again"

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
    """List the samples of MDS shards that are not compressed, which are packed from where they lie.

    Images are columns of encoding ``jpeg``, ``png`` or ``bytes``.

    Raises:
        SourceError: There is no index that can be read, no column of images, or the shards have
            different columns, or are compressed.
        OptionError: A column has an encoding that is not read; pickled ones are not.
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
    encodings = {name: encoding for name, (encoding, _) in first.columns.items()}

    def rows(columns: Columns) -> Iterator[Row]:
        if encodings[columns.image] not in _IMAGES:
            raise OptionError(
                f"{root}: column {columns.image!r} of encoding {encodings[columns.image]} holds no "
                "encoded image; pack it with fastdata.pack(StreamingDataset(...), dst)"
            )
        for name in columns.all():
            if encodings[name] not in (*_IMAGES, *_TEXTS, *_NUMBERS):
                raise OptionError(
                    f"{root}: column {name!r} of encoding {encodings[name]} cannot be read"
                )
        for file, shard in enumerate(shards):
            for offset, data in _samples(shard):
                parts = _parts(shard, offset, data)
                where = f"{shard.path}: the sample at byte {offset}: column"
                yield {
                    name: Stored.at(data[slice(*parts[name])], offset + parts[name][0], file)
                    if name == columns.image
                    else _decode(encodings[name], data[slice(*parts[name])], f"{where} {name!r}")
                    for name in columns.all()
                }

    images = tuple(name for name, encoding in encodings.items() if encoding in _IMAGES)
    files = Files([shard.path for shard in shards])
    return list_table(root, inputs, Table(tuple(encodings), images, rows, files), wanted)


def is_index(data: bytes) -> bool:
    """Whether an ``index.json`` is one of MDS shards."""
    try:
        shards = read_json(data, INDEX_NAME, SourceError, "")["shards"]
        return bool(shards[0]["format"] == "mds")
    except (SourceError, LookupError, TypeError):
        return False


def _shards(folder: Path) -> list[_Shard]:
    file = folder / INDEX_NAME
    try:
        text = read_regular(file)
    except OSError as error:
        raise SourceError(f"{file}: cannot read the index: {error.strerror}") from error
    listed = JsonFields.read(text, str(file), SourceError, _ADVICE)
    shards = [
        _shard(folder, listed.inner(f"shard {number}", shard))
        for number, shard in enumerate(listed.list_of("shards", dict))
    ]
    if not shards:
        raise SourceError(f"{file}: names no shard")
    return shards


def _shard(folder: Path, stated: JsonFields) -> _Shard:
    form, version = stated.take("format", str), stated.take("version", int)
    if (form, version) != ("mds", 2):
        raise stated.problem(f"a shard of {form} {version}, not mds 2")
    raw = stated.inner("raw_data", stated.take("raw_data", dict))
    name, size = raw.take("basename", str), raw.count("bytes")
    parts = Path(name).parts
    if not parts or os.path.isabs(name) or ".." in parts or "\0" in name:
        raise stated.problem(f"a shard cannot be called {name!r}")
    path = folder / name
    if stated.object_or_none("zip_data") is not None and not path.exists():
        raise SourceError(
            f"{stated.where}: {name} is there only compressed; decompress it under that name, or "
            "pack fastdata.pack(StreamingDataset(...), dst)"
        )
    names = stated.list_of("column_names", str)
    encodings = stated.list_of("column_encodings", str)
    sizes = stated.take("column_sizes", list)
    if not all(fixed is None or (type(fixed) is int and fixed > 0) for fixed in sizes):
        raise stated.problem(f"columns cannot have sizes {sizes!r:.80}")
    if not len(set(names)) == len(names) == len(encodings) == len(sizes):
        raise stated.problem("names, encodings and sizes of columns do not belong together")
    columns = dict(zip(names, zip(encodings, sizes, strict=True), strict=True))
    return _Shard(path, stated.count("samples"), size, columns)


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
    at, found = 4 * open_ended, {}
    if len(data) < at:
        raise ShardError(f"{shard.path}: the sample at byte {offset} is cut short; fetch it again")
    stated = iter(np.frombuffer(data[:at], "<u4").tolist())
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


def _decode(encoding: str, data: bytes, where: str) -> Any:
    if encoding in _NUMBERS:
        kind = np.dtype(_NUMBERS[encoding])
        if len(data) != kind.itemsize:
            raise ShardError(f"{where}: {len(data)} bytes are no {encoding}; fetch it again")
        return np.frombuffer(data, kind)[0].item()
    return data.decode("utf-8", "surrogateescape") if encoding in _TEXTS else data
