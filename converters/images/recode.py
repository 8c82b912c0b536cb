"""Images that cannot be stored as they are: re-encoded, salvaged, or made PNG by way of Pillow."""

import io
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata import native
from fastdata.converters.images.reductions import FIRST_FRAME, LESS_DEPTH, NO_ALPHA, STRETCHED
from fastdata.errors import DecodeError
from fastdata.images.jpeg_header import is_lossless
from fastdata.images.limits import JpegLimits, check_pixels
from fastdata.images.pillow import (
    FORMATS,
    depth,
    load,
    needs_pillow,
    open_header,
    pillow_format,
    to_rgb,
)
from fastdata.images.probe import ImageInfo, decoding_bytes, probe
from fastdata.system.resources import BUDGET, never

Pixels = npt.NDArray[np.uint8]

_ORIENTATION = 274
_MOST_JPEG_SIDE = 65500  # libjpeg's own limit
_END_OF_JPEG = b"\xff\xd9"
_BYTES_A_PIXEL = 16  # as decoded, converted, as an array, and encoded
_JPEG2000_BYTES_A_PIXEL = 100  # with code blocks of 16 pixels, the smallest
_JPEG2000_TILE_BYTES = 16 << 10
_JPEG2000_MOST_TILES = 65535
_START_OF_JPEG2000 = b"\xff\x4f\xff\x51"
_PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def decoded(data: bytes, info: ImageInfo) -> Pixels:
    """Decode an image to (H, W, 3) uint8 RGB.

    Raises:
        DecodeError: It is damaged.
    """
    from fastdata.images.pixels import decode

    pixels = decode(data)
    height, width = pixels.shape[:2]
    if (width, height) != (info.width, info.height):
        raise DecodeError(
            f"the header says {info.width} x {info.height} pixels, found {width} x {height}"
        )
    return pixels


def resampled(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Resize pixels to a width and a height."""
    import cv2

    height, width = pixels.shape[:2]
    # INTER_AREA is the mean over an area only where no side grows.
    shrunk = (min(size[0], width), min(size[1], height))
    if shrunk != (width, height):
        pixels = np.asarray(cv2.resize(pixels, shrunk, interpolation=cv2.INTER_AREA), np.uint8)
    if size != shrunk:
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR), np.uint8)
    return pixels


def encoded(pixels: Pixels, kind: str, quality: int) -> bytes:
    """Encode (H, W, 3) uint8 RGB pixels as a ``"jpeg"``, a ``"png"`` or an ``"npy"`` file.

    Raises:
        DecodeError: The format cannot hold it.
    """
    height, width = pixels.shape[:2]
    if kind == "npy":
        return as_npy(pixels)
    if kind == "jpeg" and max(width, height) > _MOST_JPEG_SIDE:
        raise DecodeError(
            f"{width}x{height} pixels, and no side of a JPEG has over {_MOST_JPEG_SIDE}"
        )
    import cv2

    gray = all(bool((part == part[:, :, :1]).all()) for part in (pixels[:1], pixels))
    plane = pixels[:, :, 0] if gray else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if kind == "jpeg" else []
    done, image = cv2.imencode(f".{kind}", np.ascontiguousarray(plane), options)
    if not done:
        raise DecodeError(f"OpenCV cannot write {width}x{height} pixels as {kind.upper()}")
    return image.tobytes()


def as_npy(pixels: Pixels) -> bytes:
    """Pixels as an NPY file of (H, W, 3).

    Args:
        pixels: (H, W, 3), (H, W, 1) or (H, W), gray without channels.
    """
    height, width = pixels.shape[:2]
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({height}, {width}, 3), }}"
    padded = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + "\n"
    head = b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little")
    colour = np.broadcast_to(pixels.reshape(height, width, -1), (height, width, 3))
    return head + padded.encode("ascii") + np.ascontiguousarray(colour).tobytes()


def readable(
    data: bytes, name: str, *, keep: bool, max_pixels: int, stopped: Callable[[], bool] = never
) -> tuple[bytes, tuple[str, ...]]:
    """An image as a loader reads it: its own bytes, or those of a PNG with its pixels.

    Args:
        data: The whole file.
        name: The file's name, for formats that do not say in their bytes what they are.
        keep: Keep the bytes of images that loaders can read, though only by Pillow.
        max_pixels: Refuse a larger image.
        stopped: Whether it is not wanted any more, while it waits for memory.

    Returns:
        The image, and what was changed or left out that is worth knowing.

    Raises:
        DecodeError: It is no image, or is damaged, or Pillow is needed and missing.
        StoppedError: It is not wanted any more.
    """
    try:
        info = probe(data, max_pixels)
    except DecodeError:
        kind = "jpeg" if is_lossless(data) else pillow_format(data[:64], name)
        if kind is None:
            raise
    else:
        kind = None if keep or info.format == "jpeg" else needs_pillow(data)
        if kind is None:
            return data, ()
    return _to_png(data, kind, max_pixels, stopped)


def salvage(
    jpeg: bytes, run_pixels: int, max_pixels: int, stopped: Callable[[], bool] = never
) -> bytes | None:
    """What libjpeg-turbo can decode of a damaged JPEG, gray where data are missing.

    Args:
        jpeg: The whole file.
        run_pixels: Wanted distance between restart markers in pixels.
        max_pixels: Refuse a larger image.
        stopped: Whether it is not wanted any more, while it waits for memory.

    Returns:
        A JPEG of these pixels if there can be one, else a PNG; None if libjpeg-turbo decodes
        nothing.

    Raises:
        StoppedError: It is not wanted any more.
    """
    closed = jpeg + _END_OF_JPEG
    try:
        info = probe(closed, max_pixels)  # the limits hold for damaged images as well
        with BUDGET.lease(2 * decoding_bytes(info, len(closed)) + 4 * len(closed), stopped):
            return _salvaged(closed, run_pixels, max_pixels)
    except DecodeError:
        return None


def _salvaged(closed: bytes, run_pixels: int, max_pixels: int) -> bytes | None:
    from fastdata.images.pixels import decode

    pixels = decode(closed)
    core = native.load()
    if core is not None:
        limits = JpegLimits(max_pixels)
        with suppress(DecodeError):
            coded, *_ = core.transcode_jpeg(closed, run_pixels, limits, damaged=True)
            # If scans are missing, libjpeg smooths what it has, which coefficients cannot express.
            if coded is not None and np.array_equal(decode(coded), pixels):
                return bytes(coded)
    import cv2

    done, image = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    return image.tobytes() if done else None


def _to_png(
    data: bytes, kind: str, max_pixels: int, stopped: Callable[[], bool]
) -> tuple[bytes, tuple[str, ...]]:
    """Decode an image of a Pillow format; encode it as PNG, 8 bits, gray where it is gray.

    An EXIF orientation that Pillow did not apply is copied.
    """
    label = FORMATS[kind].label
    if kind == "ico":  # Pillow decodes icons when it opens them
        with BUDGET.lease(_icon_pixels(data, max_pixels) * _BYTES_A_PIXEL + len(data), stopped):
            image = open_header(data, kind, max_pixels)
            return _coded(image), (f"{label} coded to PNG", *_lost(image))
    image = open_header(data, kind, max_pixels)
    needed = image.width * image.height * _BYTES_A_PIXEL
    if kind == "jpeg2000":
        needed = _jpeg2000_bytes(data, image.width * image.height)
    with BUDGET.lease(needed + len(data), stopped):
        load(image, kind, max_pixels)
        return _coded(image), (f"{label} coded to PNG", *_lost(image))


def _icon_pixels(data: bytes, max_pixels: int) -> int:
    """Pixels of the largest picture in an icon, whose header may state a smaller one.

    Raises:
        DecodeError: It is over the limit.
    """
    most = 0
    with suppress(struct.error):  # a picture that is cut off is not decoded
        (pictures,) = struct.unpack_from("<H", data, 4)
        for entry in range(6, 6 + 16 * pictures, 16):
            (at,) = struct.unpack_from("<I", data, entry + 12)
            if data.startswith(_PNG_HEAD, at):
                width, height = struct.unpack_from(">II", data, at + 16)
            else:  # a BMP of the picture and its mask
                width, height = struct.unpack_from("<II", data, at + 4)
                height //= 2
            check_pixels(width, height, max_pixels)
            most = max(most, width * height)
    return most


def _jpeg2000_bytes(data: bytes, pixels: int) -> int:
    """Bytes that decoding a JPEG 2000 takes at most, about."""
    tiles = 1
    if (at := data.find(_START_OF_JPEG2000)) >= 0:
        with suppress(struct.error):
            sides = struct.unpack_from(">8I", data, at + 8)  # X, Y; origin; tile; its origin
            across, down = (
                -(-(end - start) // max(1, side))
                for end, side, start in zip(sides[:2], sides[4:6], sides[6:], strict=True)
            )
            tiles = min(max(1, across) * max(1, down), _JPEG2000_MOST_TILES)
    return pixels * _JPEG2000_BYTES_A_PIXEL + tiles * _JPEG2000_TILE_BYTES


def _coded(image: Any) -> bytes:
    pixels = to_rgb(image)
    from PIL import Image

    gray = all(bool((part == part[:, :, :1]).all()) for part in (pixels[:1], pixels))
    exif = Image.Exif()
    turn = _orientation(image)
    if turn != 1:
        exif[_ORIENTATION] = turn
    coded = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if gray else pixels).save(coded, "PNG", exif=exif)
    return coded.getvalue()


def _orientation(image: Any) -> int:
    if image.format == "TIFF":  # Pillow has turned it
        return 1
    try:
        turn = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 - the image itself is not damaged
        return 1
    return turn if turn in range(1, 9) else 1


def _lost(image: Any) -> tuple[str, ...]:
    """What is lost when a loaded Pillow image becomes 8 bits of RGB."""
    alpha = image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
    stretched = image.mode in ("I", "F") and image.format != "PPM"
    notes = {
        FIRST_FRAME: _is_animated(image),
        LESS_DEPTH: depth(image) > 8 and not stretched,
        STRETCHED: stretched,
        NO_ALPHA: alpha,
    }
    return tuple(note for note, holds in notes.items() if holds)


def _is_animated(image: Any) -> bool:
    if image.format == "PSD":  # its layers are merged in the first picture
        return False
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # noqa: BLE001 - damage after the first frame does not matter
        return False
