"""Tells the format and the size of an encoded image from its header.

Only the bytes count: a PNG named .jpg is a PNG.
"""

import struct
from typing import NamedTuple

from fastdata import native
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
from fastdata.images.limits import MAX_PIXELS, JpegLimits, check_pixels
from fastdata.images.pillow import FORMATS as PILLOW_FORMATS
from fastdata.images.pillow import INSTALL, pillow_format

FORMATS = ("unknown", "jpeg", "png", "webp", "bmp", "gif", "tiff", "npy")
"""Names of formats; an index in this tuple is a code in catalogs, so the order never changes."""

EXTENSIONS = {
    "jpeg": "jpg",
    "png": "png",
    "webp": "webp",
    "bmp": "bmp",
    "gif": "gif",
    "tiff": "tif",
    "npy": "npy",
}
"""Extension of a shard's members, by format."""

_READERS = {
    "png": read_png,
    "webp": read_webp,
    "bmp": read_bmp,
    "gif": read_gif,
    "tiff": read_tiff,
    "npy": read_npy,
}

_BY_PILLOW = ("gif", "tiff", "bmp")  # always, or some kinds of them

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
    """What its header says of an image.

    Attributes:
        format: One of ``FORMATS``.
        width: In pixels, as decoded: EXIF orientation is not applied, TIFF's own is.
        height: In pixels, as decoded.
        components: Stored channels: 1 for gray and for an index into a palette, 2 for gray with
            alpha, 3 for colour, 4 for colour with alpha and for CMYK.
        sampling: Chroma sampling of a JPEG, such as ``"4:2:0"``; ``"4:0:0"`` for gray, the factors
            of every component for rare kinds; empty for other formats.
        progressive: Whether it is a progressive JPEG.
        restart_interval: MCUs between a JPEG's restart markers; 0 if it has none.
    """

    format: str
    width: int
    height: int
    components: int
    sampling: str = ""
    progressive: bool = False
    restart_interval: int = 0


def probe(data: bytes | memoryview, max_pixels: int = MAX_PIXELS) -> ImageInfo:
    """Tell the format and the size of an encoded image without decoding it.

    Args:
        data: The whole file; a memoryview must be of contiguous bytes.
        max_pixels: Refuse a larger image.

    Raises:
        DecodeError: It is not an image of a known format, or is truncated, damaged, over a limit,
            or of a kind that cannot be decoded.
    """
    view = memoryview(data)
    head = bytes(view[:64])
    name = sniff(head)
    if name not in _MAGIC:
        raise _refusal(head, name)
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
    """Estimate the most memory that decoding takes, besides the ``size`` bytes of the file."""
    if info.format == "npy":
        return size
    # The pixels twice, inside and outside the decoder, 4 bytes each with alpha; in addition all
    # coefficients of a progressive JPEG, or Pillow's copies.
    large = info.progressive or info.format in _BY_PILLOW
    return info.width * info.height * (12 if large else 8)


def sniff(head: bytes) -> str | None:
    """Name the image format that a file's first bytes announce, whether or not it can be loaded.

    Args:
        head: The first 64 bytes, or all there are; 16 tell all formats but some AVIF and HEIF.

    Returns:
        A name in ``FORMATS``, or in :data:`fastdata.images.pillow.FORMATS` for what only ``pack``
        reads; None for anything else, videos and JPEG XL included.
    """
    for name, magic in _MAGIC.items():
        # RIFF is the container of sounds and videos, too.
        if head.startswith(magic) and (name != "webp" or head[8:12] == b"WEBP"):
            return name
    return pillow_format(head)


def _refusal(head: bytes, name: str | None) -> DecodeError:
    """Say why a file that begins with these bytes cannot be loaded."""
    if name is not None:
        return DecodeError(
            f"{PILLOW_FORMATS[name].label} is not loaded as it is: `fastdata pack` stores it as "
            f"PNG, by Pillow ({INSTALL})"
        )
    if not head:
        return DecodeError("not an image: it is empty")
    # Named, since people do have them among their images and wonder.
    if head[4:8] == b"ftyp":
        return DecodeError(f"not an image that can be read: a video ({head[8:12]!r})")
    if head.startswith((b"\xff\x0a", b"\0\0\0\x0cJXL ")):
        return DecodeError("not an image that can be read: JPEG XL")
    names = ", ".join(sorted(name.upper() for name in EXTENSIONS))
    return DecodeError(f"not an image: it starts with {head[:8]!r}, which is none of {names}")


def _read_jpeg(data: bytes | memoryview, max_pixels: int) -> JpegHeader:
    core = native.load()
    if core is None:
        return read_jpeg_header(data, max_pixels)
    return JpegHeader(*core.probe_jpeg(data, JpegLimits(max_pixels)))
