"""Decodes to RGB pixels by OpenCV where it is exact, else by Pillow; imports no torch.

The pixels are those of Pillow's ``Image.open(file).convert("RGB")``, and so of torchvision's
ImageFolder: the first frame of an animation, alpha dropped, palettes looked up, EXIF orientation
not applied, TIFF's own applied. Two things differ: 16-bit gray keeps its upper 8 bits (see
:mod:`fastdata.images.pillow`), and colours of CMYK JPEGs are up to 2 off.

OpenCV is fast, does not hold the GIL, and reads what training usually needs: JPEG, PNG, WebP, and
the plain kinds of BMP and TIFF. It refuses GIF and other BMP and TIFF or gives other pixels; Pillow
reads those, and ``pack`` stores them as PNG.
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
    """Decode one image; the module's docstring says to which pixels.

    Args:
        data: An image that was probed, of a format in :data:`fastdata.images.probe.FORMATS`.

    Returns:
        (H, W, 3) uint8 RGB, owned by the caller.

    Raises:
        DecodeError: The image is truncated or damaged, or needs Pillow, which is missing.
        MemoryError: There is not enough for the pixels.
    """
    if data.startswith(NPY_MAGIC):  # pixels as they are, which no library decodes
        width, height, components = read_npy(memoryview(data))
        start = len(data) - width * height * components
        return np.frombuffer(data, np.uint8, offset=start).reshape(height, width, 3).copy()
    if (kind := pillow.needs_pillow(data)) is not None:
        return pillow.decode(data, kind)
    try:
        image = cv2.imdecode(np.frombuffer(still(data), np.uint8), _FLAGS)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:  # the machine's fault, not the image's
            raise MemoryError(error.err) from error
        raise DecodeError(f"OpenCV cannot decode the image: {error.err}") from error
    if image is None:
        raise DecodeError("OpenCV cannot decode the image: not an image, truncated, or damaged")
    return np.asarray(image, np.uint8)


def still(data: bytes) -> bytes:
    """Drop a PNG's animation, which OpenCV would blend into the first frame; others stay as is."""
    if not data.startswith(b"\x89PNG") or b"acTL" not in data:
        return data
    # Without acTL it is an ordinary PNG; the frames' chunks would then be unknown ones.
    parts, at = [data[:8]], 8
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if name not in (b"acTL", b"fcTL", b"fdAT"):
            parts.append(data[at : at + 12 + length])
        at += 12 + length
    return b"".join(parts)
