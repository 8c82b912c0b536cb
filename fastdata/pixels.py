"""Encoded bytes to RGB pixels, by OpenCV; no torch.

EXIF orientation is not applied, as in torchvision's ImageFolder: what was trained on so far keeps
its pixels. TIFF's own orientation is part of its format, and every reader applies it.
"""

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.errors import DecodeError
from fastdata.image_headers import NPY_MAGIC, read_npy

Image = npt.NDArray[np.uint8]

_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


def decode(data: bytes) -> Image:
    """Decode one image.

    Grayscale becomes three equal channels, 16 bits become 8, alpha is dropped, and of an animation
    the first frame is taken.

    Args:
        data: An encoded image in any format that OpenCV reads, or an NPY file of pixels.

    Returns:
        (H, W, 3) uint8 RGB, owned by the caller.

    Raises:
        DecodeError: The bytes are no image, or are truncated.
        MemoryError: There is none for the pixels.
    """
    if data.startswith(NPY_MAGIC):
        width, height, components = read_npy(memoryview(data))
        start = len(data) - width * height * components
        return np.frombuffer(data, np.uint8, offset=start).reshape(height, width, 3).copy()
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError(error.err) from error
        raise DecodeError(f"OpenCV cannot decode the image: {error.err}") from error
    if image is None:
        raise DecodeError("OpenCV cannot decode the image: not an image, truncated, or damaged")
    return np.asarray(image, np.uint8)
