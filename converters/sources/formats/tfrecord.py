"""TFRecord files of ``tf.train.Example``: both checksums of every record are checked.

A record is its length (u64), the masked CRC32C of these eight bytes, the message, and the masked
CRC32C of that (tensorflow/core/lib/io/record_writer.h).
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastdata.converters.problems import read_range
from fastdata.converters.sources.builder import Builder, Wanted
from fastdata.converters.sources.columns import Columns, as_field
from fastdata.converters.sources.formats.example import Span, Value, read_example
from fastdata.converters.sources.listing import MAX_BYTES
from fastdata.converters.sources.records import Extent, Files, RecordListing
from fastdata.errors import ShardError, SourceError
from fastdata.system.checksum import crc32c
from fastdata.system.untrusted import open_regular

_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_MASK = 0xA282EAD8
_ADVICE = "fetch or write this file again"


class _Record(NamedTuple):
    """A record of a file: its message and where that lies."""

    number: int
    offset: int
    data: bytes


def masked(data: bytes) -> int:
    """CRC32C as TFRecord stores it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def is_tfrecord(head: bytes) -> bool:
    """Whether a file that begins so, with 12 bytes or more, is a TFRecord."""
    return len(head) >= _HEAD.size and bool(_HEAD.unpack_from(head)[1] == masked(head[:8]))


def list_tfrecord(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted
) -> RecordListing:
    """List the samples of TFRecord files; every byte is read once.

    Raises:
        ShardError: A record does not match its checksums, is cut off, or is no Example.
        SourceError: There is no feature of images, or a record has other features than the first.
    """
    builder = Builder(root, inputs, Files(paths))
    columns: Columns | None = None
    for file, path in enumerate(paths):
        for record in _records(path):
            try:
                features = read_example(record.data)
            except ValueError as error:  # UnicodeDecodeError is one
                raise _error(path, record, f"no tf.train.Example: {error}") from None
            if columns is None:
                columns = Columns(root, features, wanted)
            _add(builder, columns, features, file, path, record)
    return builder.listing(wanted.classes)


def _add(
    builder: Builder,
    columns: Columns,
    features: dict[str, list[Value]],
    file: int,
    path: Path,
    record: _Record,
) -> None:
    missing = {columns.image, columns.label} - {None} - features.keys()
    if missing:
        raise SourceError(
            f"{path}: record {record.number} has no feature {missing.pop()!r}, which the first one "
            f"has, but {', '.join(sorted(features))}; pack records of one kind"
        )
    images = features[columns.image]
    if len(images) != 1 or not isinstance(images[0], Span):
        raise SourceError(
            f"{path}: record {record.number}: feature {columns.image!r} holds no single text of "
            "bytes; say which one is the image with --column image=NAME"
        )
    data = record.data
    span = images[0]
    image = data[slice(*span)]
    name, label = (
        [_plain(data, value) for value in features.get(column, [])] if column else []
        for column in (columns.key, columns.label)
    )
    further: dict[str, Extent | bytes] = {}
    for field, column in columns.fields.items():
        values = features.get(column, [])
        if len(values) == 1 and isinstance(values[0], Span):
            further[field] = _extent(record, values[0], file)
        elif values:
            further[field] = as_field([_text(data, value) for value in values], str(path))
    builder.add(
        name[0] if name and isinstance(name[0], bytes) else str(name[0]) if name else None,
        _extent(record, span, file),
        label[0] if len(label) == 1 else label or None,
        further,
        head=image,
    )


def _extent(record: _Record, span: Span, file: int) -> Extent:
    crc = crc32c(record.data[slice(*span)])
    return Extent(record.offset + span.start, span.end - span.start, crc, file)


def _text(data: bytes, value: Value) -> str | int | float:
    plain = _plain(data, value)
    return plain.decode("utf-8", "replace") if isinstance(plain, bytes) else plain


def _plain(data: bytes, value: Value) -> bytes | int | float:
    return data[slice(*value)] if isinstance(value, Span) else value


def _records(path: Path) -> Iterator[_Record]:
    with open_regular(path) as fd:
        size = os.fstat(fd).st_size
        at = number = 0
        while at < size:
            head = read_range(fd, at, _HEAD.size)
            if len(head) < _HEAD.size or masked(head[:8]) != _HEAD.unpack(head)[1]:
                text = "its length does not match its CRC32C" + _compressed(head)
                raise _error(path, _Record(number, at, b""), text)
            length = _HEAD.unpack(head)[0]
            start = at + _HEAD.size
            record = _Record(number, start, b"")
            if start + length + _CRC.size > size:
                raise _error(path, record, f"truncated: {length} bytes should follow")
            if length > MAX_BYTES:
                raise _error(path, record, "over 4 GiB")
            data = read_range(fd, start, length + _CRC.size)
            record = _Record(number, start, data[:-4])
            if _CRC.unpack(data[-4:])[0] != masked(record.data):
                raise _error(path, record, "its data do not match their CRC32C")
            yield record
            at = start + length + _CRC.size
            number += 1


def _compressed(head: bytes) -> str:
    return " (it is compressed by gzip: decompress it)" if head.startswith(b"\x1f\x8b") else ""


def _error(path: Path, record: _Record, text: str) -> ShardError:
    return ShardError(f"{path}: record {record.number} at byte {record.offset}: {text}; {_ADVICE}")
