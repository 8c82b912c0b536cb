"""EXIF orientation: where formats store it, and how pixels are turned upright."""

import re
import struct
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

_ORIENTATION = 274
_INTEGERS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i"}  # SHORT; some writers use others

_MARK = b"Exif\0\0"
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xff]")

# What brings pixels from each orientation upright (JEITA CP-3451, tag 274); 1 is upright already.
_TURNS: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: pixels[::-1].transpose(1, 0, 2),
    7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
    8: lambda pixels: pixels[:, ::-1].transpose(1, 0, 2),
}


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Turn (H, W, 3) pixels of an orientation from 1 to 8 upright; (W, H, 3) from 5 on."""
    return np.ascontiguousarray(_TURNS[orientation](pixels))


def orientation(data: bytes, kind: str) -> int:
    """EXIF orientation of an image that was probed.

    Args:
        data: The whole file.
        kind: Its format; only JPEG, PNG and WebP hold EXIF apart from their pixels.

    Returns:
        1 to 8; 1, which is upright, if there is none or it cannot be read.
    """
    find = {"jpeg": _jpeg_exif, "png": _png_exif, "webp": _webp_exif}.get(kind)
    if find is None:
        return 1
    view = memoryview(data)
    try:
        exif = find(view)
        return 1 if exif is None else _tag(exif)
    except (struct.error, IndexError):  # the image itself is not damaged
        return 1


def _jpeg_exif(data: memoryview) -> memoryview | None:
    at = 2
    while found := _JPEG_MARKER.search(data, at):  # skip bytes between segments
        at = found.end()
        marker = data[at - 1]
        if marker == 0xDA:  # pixels follow
            return None
        (length,) = struct.unpack_from(">H", data, at)
        if marker == 0xE1 and bytes(data[at + 2 : at + 8]) == _MARK:
            return data[at + 8 : at + length]
        at += max(2, length)
    return None


def _png_exif(data: memoryview) -> memoryview | None:
    at = 8
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if name == b"eXIf":
            return data[at + 8 : at + 8 + length]
        at += 12 + length
    return None


def _webp_exif(data: memoryview) -> memoryview | None:
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        if name == b"EXIF":
            exif = data[at + 8 : at + 8 + length]
            return (
                exif[6:] if bytes(exif[:6]) == _MARK else exif
            )  # some writers leave the mark there
        at += 8 + length + (length & 1)
    return None


def _tag(exif: memoryview) -> int:
    """Orientation from the first directory of a TIFF structure."""
    order = {b"II": "<", b"MM": ">"}.get(bytes(exif[:2]))
    if order is None:
        return 1
    (at,) = struct.unpack_from(order + "I", exif, 4)
    (entries,) = struct.unpack_from(order + "H", exif, at)
    for entry in range(at + 2, at + 2 + 12 * entries, 12):
        tag, kind, count = struct.unpack_from(order + "HHI", exif, entry)
        if tag == _ORIENTATION and count == 1 and kind in _INTEGERS:
            (value,) = struct.unpack_from(order + _INTEGERS[kind], exif, entry + 8)
            return value if value in _TURNS else 1
    return 1
