"""TFRecord files of ``tf.train.Example``.

A record is its length (u64), the masked CRC32C of these eight bytes, the message, and the masked
CRC32C of that (tensorflow/core/lib/io/record_writer.h). The packages that read this without
TensorFlow pass over the checksums; the messages are protobuf's to parse.
"""

import os
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fastdata.converters.problems import read_range
from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import Columns
from fastdata.converters.sources.formats.table import (
    Row,
    Stored,
    Table,
    list_table,
    missing_extra,
)
from fastdata.converters.sources.listing import MAX_BYTES
from fastdata.converters.sources.records import Files, RecordListing
from fastdata.errors import ShardError, SourceError
from fastdata.system.checksum import crc32c
from fastdata.system.untrusted import open_regular

_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_MASK = 0xA282EAD8
_ADVICE = "fetch or write this file again"

# The map of features is what its wire format is: a list of entries.
_MESSAGES = {
    "BytesList": "repeated bytes value",
    "FloatList": "repeated float value",
    "Int64List": "repeated int64 value",
    "Feature": "BytesList bytes_list, FloatList float_list, Int64List int64_list",
    "Entry": "string key, Feature value",
    "Features": "repeated Entry feature",
    "Example": "Features features",
}


class _Record(NamedTuple):
    """A record of a file: its message and where that lies."""

    number: int
    offset: int
    data: bytes


def is_tfrecord(head: bytes) -> bool:
    """Whether a file that begins so, with 12 bytes or more, is a TFRecord."""
    return len(head) >= _HEAD.size and bool(_HEAD.unpack_from(head)[1] == _masked(head[:8]))


def list_tfrecord(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted
) -> RecordListing:
    """List the samples of TFRecord files, which are packed from where they lie.

    Raises:
        MissingExtraError: The package ``protobuf`` is not installed.
        ShardError: A record does not match its checksums, is cut off, or is no Example.
        SourceError: There is no feature of images, or a record has other features than the first.
    """
    try:
        _example()
    except ImportError:
        raise missing_extra(root, "TFRecord", "protobuf") from None
    first = next((_features(path, record) for path in paths for record in _records(path)), None)
    if first is None:
        raise SourceError(f"{root}: holds no record")
    table = Table(tuple(first), None, lambda columns: _rows(paths, columns), Files(paths))
    return list_table(root, inputs, table, wanted)


def _rows(paths: list[Path], columns: Columns) -> Iterator[Row]:
    for file, path in enumerate(paths):
        for record in _records(path):
            features = _features(path, record)
            missing = {columns.image, columns.label} - {None} - features.keys()
            if missing:
                raise SourceError(
                    f"{path}: record {record.number} has no feature {missing.pop()!r}, which the "
                    f"first one has, but {', '.join(sorted(features))}; pack records of one kind"
                )
            row = {
                name: _value(record, features[name], file)
                for name in columns.all()
                if name in features
            }
            if not isinstance(row[columns.image], Stored):
                raise SourceError(
                    f"{path}: record {record.number}: feature {columns.image!r} holds no single "
                    "text of bytes; say which one is the image with --column image=NAME"
                )
            for column in (columns.label, columns.key):
                if column and isinstance(row.get(column), Stored):
                    row[column] = row[column].data
            yield row


def _value(record: _Record, values: list[Any], file: int) -> Any:
    if len(values) == 1 and isinstance(values[0], bytes):
        # Protobuf does not say where; any place with the same bytes is as good.
        return Stored.at(values[0], record.offset + record.data.index(values[0]), file)
    texts = [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values
    ]
    return texts or None


def _features(path: Path, record: _Record) -> dict[str, list[Any]]:
    from google.protobuf.message import DecodeError

    try:
        features = _example().FromString(record.data).features.feature
    except DecodeError as error:
        raise _error(path, record, f"no tf.train.Example: {error}") from None
    return {
        entry.key: [value for _, values in entry.value.ListFields() for value in values.value]
        for entry in features
    }


@cache
def _example() -> Any:
    """Protobuf's class for the messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="proto3")
    for name, content in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(content.split(", "), 1):
            *repeated, kind, label = text.split()
            made = message.field.add(name=label, number=number)
            made.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if kind in _MESSAGES:
                made.type, made.type_name = field.TYPE_MESSAGE, f".e.{kind}"
            else:
                made.type = field.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()  # not the default one, where TensorFlow has its own
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("e.Example"))


def _records(path: Path) -> Iterator[_Record]:
    with open_regular(path) as fd:
        size = os.fstat(fd).st_size
        at = number = 0
        while at < size:
            head = read_range(fd, at, _HEAD.size)
            if len(head) < _HEAD.size or _masked(head[:8]) != _HEAD.unpack(head)[1]:
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
            if _CRC.unpack(data[-4:])[0] != _masked(record.data):
                raise _error(path, record, "its data do not match their CRC32C")
            yield record
            at = start + length + _CRC.size
            number += 1


def _compressed(head: bytes) -> str:
    return " (it is compressed by gzip: decompress it)" if head.startswith(b"\x1f\x8b") else ""


def _error(path: Path, record: _Record, text: str) -> ShardError:
    return ShardError(f"{path}: record {record.number} at byte {record.offset}: {text}; {_ADVICE}")


def _masked(data: bytes) -> int:
    """CRC32C as TFRecord stores it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
