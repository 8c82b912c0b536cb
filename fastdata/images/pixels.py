"""Encoded bytes to RGB pixels, by OpenCV where it is exact, else by Pillow; no torch.

An image has the pixels of Pillow's ``Image.open(file).convert("RGB")``, which is what torchvision's
ImageFolder gives: of an animation the first frame, alpha dropped, palettes looked up, EXIF
orientation not applied, TIFF's own applied. Where Pillow loses what it could keep, we do not: see
:mod:`fastdata.images.pillow` (16-bit gray keeps its upper 8 bits; so does a PNG by OpenCV). CMYK
JPEGs are libjpeg-turbo's CMYK multiplied out, which differs from Pillow's by up to 2.

OpenCV is fast, needs no GIL, and is the reader for all that training is usually fed with: JPEG,
PNG, WebP, and the plain kinds of BMP and TIFF. Other BMP and TIFF and all GIF it refuses or reads
otherwise; Pillow reads them, and ``pack`` stores them as PNG.
"""

import struct

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.errors import DecodeError
from fastdata.images import pillow
from fastdata.images.headers import NPY_MAGIC, read_npy

Image = npt.NDArray[np.uint8]

_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


def decode(data: bytes) -> Image:
    """Decode one image to what the module's docstring says.

    Args:
        data: An image that was probed: of a format of :data:`fastdata.images.probe.FORMATS`.

    Returns:
        (H, W, 3) uint8 RGB, owned by the caller.

    Raises:
        DecodeError: The bytes are no image, are truncated, or need Pillow, which is missing.
        MemoryError: There is none for the pixels.
    """
    if data.startswith(NPY_MAGIC):
        width, height, components = read_npy(memoryview(data))
        start = len(data) - width * height * components
        return np.frombuffer(data, np.uint8, offset=start).reshape(height, width, 3).copy()
    if (kind := pillow.needs_pillow(data)) is not None:
        return pillow.decode(data, kind)
    try:
        image = cv2.imdecode(np.frombuffer(still(data), np.uint8), _FLAGS)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError(error.err) from error
        raise DecodeError(f"OpenCV cannot decode the image: {error.err}") from error
    if image is None:
        raise DecodeError("OpenCV cannot decode the image: not an image, truncated, or damaged")
    return np.asarray(image, np.uint8)


def still(data: bytes) -> bytes:
    """A PNG without its animation, which OpenCV blends into the first frame; all else as it is."""
    if not data.startswith(b"\x89PNG") or b"acTL" not in data:
        return data
    parts, at = [data[:8]], 8
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if name not in (b"acTL", b"fcTL", b"fdAT"):
            parts.append(data[at : at + 12 + length])
        at += 12 + length
    return b"".join(parts)
