"""Encoded bytes to RGB pixels: OpenCV, and torch's antialiased resize of uint8.

EXIF orientation is not applied, as in torchvision's ImageFolder: what was trained on so far keeps
its pixels.
"""

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import interpolate

from fastdata.crop import CropPlan
from fastdata.errors import DecodeError

Image = npt.NDArray[np.uint8]

_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


def decode(data: bytes) -> Image:
    """Decode one image.

    Grayscale becomes three equal channels, 16 bits become 8, alpha is dropped, and of an animation
    the first frame is taken.

    Args:
        data: An encoded image in any format that OpenCV reads.

    Returns:
        (H, W, 3) uint8 RGB, owned by the caller.

    Raises:
        DecodeError: The bytes are no image, or are truncated.
    """
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS)
    except cv2.error as error:
        raise DecodeError(f"OpenCV cannot decode the image: {error.err}") from error
    if image is None:
        raise DecodeError("OpenCV cannot decode the image: not an image, truncated, or damaged")
    return np.asarray(image, np.uint8)


def decode_crop(data: bytes, plan: CropPlan, row: int, out: Image) -> None:
    """Decode one image, crop, resize and flip it into its place in a batch.

    Args:
        data: An encoded image whose width and height the plan was made for.
        plan: Crops of a batch.
        row: Which of them to apply.
        out: (h, w, 3) uint8, C-contiguous; every pixel is written.

    Raises:
        DecodeError: The bytes are no image, are truncated, or hold an image of another size.
    """
    image = decode(data)
    x, y, width, height = plan.source[row].tolist()
    if y + height > image.shape[0] or x + width > image.shape[1]:
        raise DecodeError(
            f"the header says at least {x + width} x {y + height} pixels, "
            f"found {image.shape[1]} x {image.shape[0]}"
        )
    region = _resize(image[y : y + height, x : x + width], plan.scaled[row].tolist())
    _cut(region, plan.cut[row].tolist(), out)
    if plan.flip[row]:
        out[:] = out[:, ::-1].copy()


def _resize(region: Image, size: list[int]) -> Image:
    """Antialiased bilinear resize to (width, height), within 1 of Pillow's."""
    width, height = size
    if region.shape[:2] == (height, width):
        return region
    pixels = torch.from_numpy(np.ascontiguousarray(region))  # (h, w, 3) uint8
    scaled = interpolate(
        pixels.permute(2, 0, 1)[None], (height, width), mode="bilinear", antialias=True
    )
    return np.asarray(scaled[0].permute(1, 2, 0).numpy(), np.uint8)  # (height, width, 3)


def _cut(region: Image, cut: list[int], out: Image) -> None:
    """Copy the window of ``out``'s size that starts at ``cut`` (x, y); zero outside the region."""
    left, top = (max(0, -c) for c in cut)
    x, y = (max(0, c) for c in cut)
    window = region[y : y + out.shape[0] - top, x : x + out.shape[1] - left]
    height, width = window.shape[:2]
    if (height, width) != out.shape[:2]:
        out.fill(0)
    out[top : top + height, left : left + width] = window
