"""Reads ``tf.train.Example`` messages, strictly: protobuf's wire format, as far as they use it.

    message Example   { Features features = 1; }
    message Features  { map<string, Feature> feature = 1; }
    message Feature   { oneof kind { BytesList bytes_list = 1;
                                     FloatList float_list = 2; Int64List int64_list = 3; } }

each list with ``repeated value = 1``, numbers packed or not.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_SHIFT = 63


class Span(NamedTuple):
    """Bytes within a message."""

    start: int
    end: int


Value = Span | int | float


def read_example(data: bytes) -> dict[str, list[Value]]:
    """Features of a message by name: spans of bytes, integers or floats.

    Raises:
        ValueError: It is no Example.
    """
    found: dict[str, list[Value]] = {}
    whole = Span(0, len(data))
    for features in _messages(data, whole, 1):
        for entry in _messages(data, features, 1):
            names = list(_messages(data, entry, 1))
            values = list(_messages(data, entry, 2))
            if len(names) != 1 or len(values) > 1:
                raise ValueError("a feature without one name and one value")
            name = data[slice(*names[0])].decode("utf-8")
            if name in found:
                raise ValueError(f"feature {name!r} comes twice")
            found[name] = _feature(data, values[0]) if values else []
    return found


def _feature(data: bytes, span: Span) -> list[Value]:
    values: list[Value] = []
    for kind, _, content in _fields(data, span):
        if not isinstance(content, Span) or kind not in (1, 2, 3):
            raise ValueError("a feature of no known kind")
        for number, wire, value in _fields(data, content):
            if number != 1:
                raise ValueError(f"field {number} in a list of values")
            values.extend(_values(data, kind, wire, value))
    return values


def _values(data: bytes, kind: int, wire: int, value: int | Span) -> Iterator[Value]:
    """Values of a list's field: one, or many that are packed."""
    if kind == 1 and isinstance(value, Span) and wire == _BYTES:
        yield value
    elif kind == 2 and isinstance(value, Span) and wire in (_BYTES, _FIXED32):
        if (value.end - value.start) % 4:
            raise ValueError("a list of floats that ends within one")
        yield from (f for (f,) in struct.iter_unpack("<f", data[slice(*value)]))
    elif kind == 3 and isinstance(value, int) and wire == _VARINT:
        yield _signed(value)
    elif kind == 3 and isinstance(value, Span) and wire == _BYTES:
        at = value.start
        while at < value.end:
            number, at = _varint(data, at, value.end)
            yield _signed(number)
    else:
        raise ValueError(f"a value of wire type {wire} in a list of kind {kind}")


def _messages(data: bytes, span: Span, wanted: int) -> Iterator[Span]:
    for number, wire, value in _fields(data, span):
        if number == wanted:
            if not isinstance(value, Span) or wire != _BYTES:
                raise ValueError(f"field {number} of wire type {wire}")
            yield value


def _fields(data: bytes, span: Span) -> Iterator[tuple[int, int, int | Span]]:
    """Number, wire type and value of the fields of a message."""
    at, end = span
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        value: int | Span
        if wire == _VARINT:
            value, at = _varint(data, at, end)
        elif wire in (_BYTES, _FIXED32, _FIXED64):
            size, at = _varint(data, at, end) if wire == _BYTES else (8 if wire == 1 else 4, at)
            value = Span(at, at + size)
            at += size
        else:
            raise ValueError(f"wire type {wire}")
        if at > end or number == 0:
            raise ValueError("a field that leads out of its message")
        yield number, wire, value


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    number = shift = 0
    while at < end and shift <= _MOST_SHIFT:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise ValueError("a number that does not end")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
