"""What an encoded image is, and how large, from its header alone.

Files are known by their content: a PNG named .jpg is a PNG.
"""

import importlib
import struct
import warnings
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from fastdata.errors import DecodeError
from fastdata.images.headers import (
    NPY_MAGIC,
    read_bmp,
    read_gif,
    read_npy,
    read_png,
    read_tiff,
    read_webp,
)
from fastdata.images.jpeg_header import JpegHeader, read_jpeg_header
from fastdata.images.limits import MAX_PIXELS, MAX_SCANS, MAX_SEGMENTS, check_pixels
from fastdata.images.pillow import FORMATS as PILLOW_FORMATS
from fastdata.images.pillow import INSTALL
from fastdata.images.pillow import sniff as sniff_for_pillow

__all__ = [
    "EXTENSIONS",
    "FORMATS",
    "MAX_PIXELS",
    "ImageInfo",
    "core",
    "decoder",
    "probe",
    "sniff",
    "warn_without_core",
]

FORMATS = ("unknown", "jpeg", "png", "webp", "bmp", "gif", "tiff", "npy")
"""Names of formats; the index of one is its code in a catalog, so the order never changes."""

EXTENSIONS = {
    "jpeg": "jpg",
    "png": "png",
    "webp": "webp",
    "bmp": "bmp",
    "gif": "gif",
    "tiff": "tif",
    "npy": "npy",
}
"""The extension that a member of a shard has, by format."""

_READERS = {
    "png": read_png,
    "webp": read_webp,
    "bmp": read_bmp,
    "gif": read_gif,
    "tiff": read_tiff,
    "npy": read_npy,
}

_BY_PILLOW = ("gif", "tiff", "bmp")  # always or sometimes

_MAGIC: dict[str, bytes | tuple[bytes, ...]] = {
    "jpeg": b"\xff\xd8\xff",
    "png": b"\x89PNG\r\n\x1a\n",
    "webp": b"RIFF",
    "gif": (b"GIF87a", b"GIF89a"),
    "tiff": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),  # + is BigTIFF
    "bmp": b"BM",
    "npy": NPY_MAGIC,
}


class ImageInfo(NamedTuple):
    """What a header says of an image.

    Attributes:
        format: One of ``FORMATS``.
        width: In pixels, as decoded: EXIF orientation is not applied, TIFF's own is.
        height: In pixels, as decoded.
        components: Channels as they are stored: 1 for gray and for an index into a palette, 2 for
            gray with alpha, 3 for colour, 4 for colour with alpha and for CMYK.
        sampling: Chroma sampling of a JPEG, ``"4:2:0"`` and the like, ``"4:0:0"`` for gray, the
            factors of every component for rare ones; empty for other formats.
        progressive: Whether it is a progressive JPEG.
        restart_interval: MCUs between a JPEG's restart markers; 0 where there are none.
    """

    format: str
    width: int
    height: int
    components: int
    sampling: str = ""
    progressive: bool = False
    restart_interval: int = 0


def _import_core() -> ModuleType | None:
    try:
        return importlib.import_module("fastdata._core")
    except ImportError:  # there was no compiler, no Python.h or no libjpeg-turbo
        return None


_CORE = _import_core()


def core() -> ModuleType | None:
    """Return the native core, or None where it could not be built or loaded."""
    return _CORE


def decoder() -> str:
    """What decodes JPEGs here, for results: ``"own"``, the native core's, or ``"OpenCV"``."""
    return "OpenCV" if _CORE is None else "own"


def warn_without_core() -> None:
    """Say where the core is missing that images are decoded slowly; once, as warnings are."""
    if _CORE is None:
        warnings.warn(
            f"fastdata's native core is missing from {Path(__file__).parent}: OpenCV decodes, "
            "whole images and slower. To build it takes a C++ compiler and libjpeg-turbo; a source "
            "tree as the working directory hides an installed wheel",
            RuntimeWarning,
            stacklevel=1,  # this place, by which Python knows that it was said
        )


def sniff(head: bytes) -> str | None:
    """Tell the format that the first bytes of a file announce, of which 16 are enough.

    Returns:
        One of ``FORMATS``, or of those that Pillow reads; None if it is no image that can be read.
    """
    return _own_format(head) or sniff_for_pillow(head)


def probe(data: bytes | memoryview, max_pixels: int = MAX_PIXELS) -> ImageInfo:
    """Tell the format and the size of an encoded image without decoding it.

    Args:
        data: The whole file; a memoryview is of contiguous bytes.
        max_pixels: Refuse a larger image.

    Raises:
        DecodeError: It is no image of a known format, or one that is truncated, damaged, over a
            limit, or of a kind that cannot be decoded.
    """
    view = memoryview(data)
    name = _sniff(bytes(view[:64]))
    if name == "jpeg":
        header = _read_jpeg(data, max_pixels)
        return ImageInfo(name, *header[:5], header.restart_interval)
    try:
        width, height, components = _READERS[name](view)
    except (struct.error, IndexError):
        raise DecodeError(f"truncated {name.upper()}: {len(view)} bytes end in a header") from None
    check_pixels(width, height, max_pixels)
    return ImageInfo(name, width, height, components)


def decoding_bytes(info: ImageInfo, size: int) -> int:
    """About the memory that decoding an image takes at most, beside its ``size`` bytes."""
    if info.format == "npy":
        return size
    # the pixels twice, in a decoder and out of it, as 4 bytes where there is alpha; and all
    # coefficients of a JPEG that comes in several scans, or Pillow's copies
    large = info.progressive or info.format in _BY_PILLOW
    return info.width * info.height * (12 if large else 8)


def _own_format(head: bytes) -> str | None:
    """Tell a format that is read without Pillow."""
    for name, magic in _MAGIC.items():
        if head.startswith(magic) and (name != "webp" or head[8:12] == b"WEBP"):
            return name
    return None


def _sniff(head: bytes) -> str:
    """Return the format that the first 64 bytes announce."""
    if (name := _own_format(head)) is not None:
        return name
    if not head:
        raise DecodeError("not an image: it is empty")
    if (kind := sniff_for_pillow(head)) is not None:
        raise DecodeError(
            f"{PILLOW_FORMATS[kind].label} is not loaded as it is: `fastdata pack` stores it as "
            f"PNG, by Pillow ({INSTALL})"
        )
    if head[4:8] == b"ftyp":
        raise DecodeError(f"not an image that can be read: a video ({head[8:12]!r})")
    if head.startswith((b"\xff\x0a", b"\0\0\0\x0cJXL ")):
        raise DecodeError("not an image that can be read: JPEG XL")
    names = ", ".join(sorted(name.upper() for name in EXTENSIONS))
    raise DecodeError(f"not an image: it starts with {head[:8]!r}, which is none of {names}")


def _read_jpeg(data: bytes | memoryview, max_pixels: int) -> JpegHeader:
    if _CORE is None:
        return read_jpeg_header(data, max_pixels)
    return JpegHeader(*_CORE.probe_jpeg(data, max_pixels, MAX_SCANS, MAX_SEGMENTS))
