"""Crops of encoded images: decoded pixels, and torch's antialiased resize of uint8."""

import numpy as np
import torch
from torch.nn.functional import interpolate

from fastdata.crop import CropPlan
from fastdata.errors import DecodeError
from fastdata.pixels import Image, decode

__all__ = ["decode", "decode_crop"]


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
