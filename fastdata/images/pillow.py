"""Decodes by Pillow, imported lazily, what OpenCV cannot read or reads differently.

Only the formats listed here are read, each by its own class: no file from a stranger reaches a
decoder that starts other programs (EPS). Pixels are those of ``Image.open(file).convert("RGB")``,
except where that clips to white or black:

- 16-bit gray keeps its upper 8 bits; Pillow makes everything above 255 white.
- Integers of more than 16 bits or with a sign, and floats, have no agreed black and white: the
  smallest value of the image becomes black and the largest white. Pillow clips them to 0 and 255.
"""

import importlib
import io
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.errors import DecodeError
from fastdata.images.headers import is_plain_bmp, is_plain_tiff
from fastdata.images.limits import MAX_PIXELS, check_pixels

Pixels = npt.NDArray[np.uint8]

INSTALL = "pip install 'fastdata[formats]'"


class _Format(NamedTuple):
    label: str
    opener: str  # module and class
    magic: tuple[bytes, ...] = ()  # what a file starts with; without any, its name decides
    endings: tuple[str, ...] = ()


_PNM = tuple(f"P{digit}{space}".encode() for digit in range(1, 7) for space in " \n\r\t")

FORMATS = {
    "avif": _Format("AVIF", "PIL.AvifImagePlugin.AvifImageFile"),
    "bmp": _Format("BMP", "PIL.BmpImagePlugin.BmpImageFile"),
    "gif": _Format("GIF", "PIL.GifImagePlugin.GifImageFile"),
    "heif": _Format("HEIF", "pillow_heif.HeifImageFile"),
    "ico": _Format("ICO", "PIL.IcoImagePlugin.IcoImageFile", (), ("ico",)),
    "jpeg": _Format("lossless JPEG", "PIL.JpegImagePlugin.JpegImageFile"),
    "jpeg2000": _Format(
        "JPEG 2000",
        "PIL.Jpeg2KImagePlugin.Jpeg2KImageFile",
        (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
    ),
    "pcx": _Format("PCX", "PIL.PcxImagePlugin.PcxImageFile", (), ("pcx",)),
    "pnm": _Format("PNM", "PIL.PpmImagePlugin.PpmImageFile", (*_PNM, b"PF\n", b"Pf\n")),
    "psd": _Format("PSD", "PIL.PsdImagePlugin.PsdImageFile", (b"8BPS\0\x01",)),
    "sgi": _Format("SGI", "PIL.SgiImagePlugin.SgiImageFile", (), ("sgi", "rgb", "rgba", "bw")),
    "sun": _Format("Sun raster", "PIL.SunImagePlugin.SunImageFile", (b"\x59\xa6\x6a\x95",)),
    "tga": _Format("TGA", "PIL.TgaImagePlugin.TgaImageFile", (), ("tga", "icb", "vda", "vst")),
    "tiff": _Format("TIFF", "PIL.TiffImagePlugin.TiffImageFile"),
}
"""What Pillow may be asked to read. Formats with neither magic nor endings are told elsewhere."""

_BRANDS = {
    "avif": (b"avif", b"avis"),
    "heif": (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"),
}
_CONTAINERS = (b"mif1", b"msf1")  # of either format: their further brands tell which


def pillow_format(head: bytes, name: str = "") -> str | None:
    """Tell a format that only Pillow reads.

    Args:
        head: The first 64 bytes of a file, or all of it.
        name: The file's name, for formats whose bytes do not tell.

    Returns:
        One of :data:`FORMATS`, or None.
    """
    for kind, known in FORMATS.items():
        if known.magic and head.startswith(known.magic):
            return kind
    if head[4:8] == b"ftyp":
        return _sniff_container(head)
    # By the name only after the bytes: TGA and PCX start with nothing that tells them.
    ending = name.rpartition(".")[2].lower()
    return next((kind for kind, known in FORMATS.items() if ending in known.endings), None)


def _sniff_container(head: bytes) -> str | None:
    size = min(int.from_bytes(head[:4], "big"), 64)
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, size, 4))]
    if brands[0] in _CONTAINERS:
        brands = brands[1:]
    elif not any(brands[0] in known for known in _BRANDS.values()):
        return None  # a video
    return next((kind for kind, known in _BRANDS.items() if set(known) & set(brands)), None)


def needs_pillow(data: bytes) -> str | None:
    """Tell whether Pillow must decode an image that was probed.

    Returns:
        Its name in :data:`FORMATS`; None if OpenCV gives the same pixels.

    Raises:
        DecodeError: Its header is truncated.
    """
    view = memoryview(data)
    try:
        if data.startswith(b"GIF8"):
            return "gif"
        if data.startswith(b"BM"):
            return None if is_plain_bmp(view) else "bmp"
        if data.startswith((b"II", b"MM")):
            return None if is_plain_tiff(view) else "tiff"
    except (struct.error, IndexError):
        raise DecodeError(f"truncated image: {len(data)} bytes end in a header") from None
    return None


def open_header(data: bytes, kind: str, max_pixels: int = MAX_PIXELS) -> Any:
    """Open an image and check its size without decoding it.

    Args:
        data: The whole file.
        kind: One of :data:`FORMATS`.
        max_pixels: Most pixels that it may have.

    Returns:
        A Pillow image for :func:`load`; of an animation the first frame.

    Raises:
        DecodeError: Pillow is missing, cannot read it, or it is too large.
    """
    label = FORMATS[kind].label
    module, _, opener = FORMATS[kind].opener.rpartition(".")
    try:
        # Not Image.open, whose limit on pixels is global to the process and warns.
        image = getattr(importlib.import_module(module), opener)(io.BytesIO(data), "")
    except ImportError:
        raise DecodeError(f"{label} of this kind needs Pillow: {INSTALL}") from None
    except Exception as error:  # decoders raise anything on damaged bytes
        raise _failure(label, error) from error
    width, height = image.size
    check_pixels(width, height, max_pixels)
    return image


def load(image: Any, kind: str, max_pixels: int = MAX_PIXELS) -> None:
    """Decode an image that :func:`open_header` opened.

    Raises:
        DecodeError: Pillow cannot read it, or it is larger than its header states.
    """
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:
        raise _failure(FORMATS[kind].label, error) from error
    width, height = image.size  # the picture in an ICO may differ from its header
    check_pixels(width, height, max_pixels)


def _failure(label: str, error: Exception) -> DecodeError:
    return DecodeError(f"Pillow cannot read this {label}: {str(error) or type(error).__name__}")


def decode(data: bytes, kind: str, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Decode an image to (H, W, 3) uint8 RGB.

    Raises:
        DecodeError: As :func:`open_header` and :func:`load`.
    """
    image = open_header(data, kind, max_pixels)
    load(image, kind, max_pixels)
    return to_rgb(image)


def to_rgb(image: Any) -> Pixels:
    """Pixels of a loaded Pillow image as (H, W, 3) uint8 RGB, writable."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        return _gray((np.asarray(image) >> (depth(image) - 8)).astype(np.uint8))
    if image.mode in ("I", "F"):
        return _gray(_stretched(np.asarray(image)))
    if image.mode == "La":  # Pillow converts it to LA only
        image = image.convert("LA")
    try:
        return np.array(image.convert("RGB"), np.uint8)
    except Exception as error:
        raise _failure(str(image.format), error) from error


def depth(image: Any) -> int:
    """Bits per sample of an opened Pillow image."""
    if image.format == "TIFF":
        return int(max(image.tag_v2.get(258, (1,))))
    if image.mode == "F":
        return 32
    return 16 if image.mode.startswith("I") else int(image.info.get("bit_depth", 8))


def _gray(plane: Pixels) -> Pixels:
    return np.repeat(plane[:, :, None], 3, axis=2)


def _stretched(values: npt.NDArray[Any]) -> Pixels:
    """Scale values to 0 for the smallest and 255 for the largest; non-finite ones become 0."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    scale = 255 / (high - low) if high > low else 0.0
    plane = np.empty(values.shape, np.uint8)
    for row, line in zip(plane, values, strict=True):  # a row at a time takes little memory
        known = np.where(np.isfinite(line), line, low).astype(np.float64)
        row[:] = np.rint((known - low) * scale)
    return plane
