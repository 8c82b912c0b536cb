"""Segmentation masks and boxes, moved with the crop of their image."""

import struct
import zlib
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.batch.decode import memory_for
from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS
from fastdata.images.probe import probe
from fastdata.plan.crop import CropPlan

Mask = npt.NDArray[np.uint8]

IGNORED = 255
"""Value of a mask's pixels that lie outside the image: torchvision's and mmseg's ignored label."""

_PNG = b"\x89PNG\r\n\x1a\n"
_GRAY, _PALETTE = 0, 3  # colour types (PNG specification, 11.2.2)
_COLOURS = (b"PLTE", b"tRNS")
_SPREAD = {1: 255, 2: 85, 4: 17, 8: 1}  # libpng widens gray of so many bits by this factor


def decode_mask(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Mask:
    """Labels of a segmentation mask, one byte a pixel.

    Of a PNG with a palette these are the indices, as VOC stores its classes, not the colours.

    Args:
        data: An encoded image.
        max_pixels: Refuse a larger one.

    Returns:
        (h, w) uint8.

    Raises:
        DecodeError: It is no image, is over a limit, or has more than one channel or 8 bits.
    """
    with memory_for(probe(data, max_pixels), data):
        return _decode_mask(data)


def _decode_mask(data: bytes) -> Mask:
    plain, factor = _without_palette(data) if data.startswith(_PNG) else (data, 1)
    try:
        mask = cv2.imdecode(np.frombuffer(plain, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise DecodeError(f"OpenCV cannot decode the mask: {error.err}") from error
    if mask is None:
        raise DecodeError("OpenCV cannot decode the mask: truncated, or damaged")
    if mask.ndim != 2 or mask.dtype != np.uint8:
        shape = "x".join(map(str, mask.shape))
        raise DecodeError(
            f"a mask has one channel of 8 bits, found {shape} of {mask.dtype}; "
            "store class indices, in gray or with a palette"
        )
    return np.asarray(mask if factor == 1 else mask // factor, np.uint8)


def crop_mask(mask: Mask, plan: CropPlan, row: int, out: Mask) -> None:
    """Cut a mask as its image is cut, without mixing labels.

    Each pixel takes the label at its centre, as Pillow's ``crop(...).resize(..., NEAREST)``;
    where the image has no pixel it is :data:`IGNORED`.

    Args:
        mask: (h, w) labels of the whole image.
        plan: Crops of a batch.
        row: Which of them to apply.
        out: (H, W) of the crop; every pixel is written.

    Raises:
        DecodeError: The mask is smaller than the image that the plan is for.
    """
    x, y, width, height = plan.source[row].tolist()
    if y + height > mask.shape[0] or x + width > mask.shape[1]:
        raise DecodeError(
            f"the mask has {mask.shape[1]} x {mask.shape[0]} pixels, its image at least "
            f"{x + width} x {y + height}"
        )
    scaled, cut = plan.scaled[row].tolist(), plan.cut[row].tolist()
    columns, inside_x = _nearest(out.shape[1], cut[0], scaled[0], width)
    rows, inside_y = _nearest(out.shape[0], cut[1], scaled[1], height)
    if plan.flip[row]:
        columns, inside_x = columns[::-1], inside_x[::-1]
    np.take(mask[y + rows], x + columns, axis=1, out=out)
    out[~inside_y] = IGNORED
    out[:, ~inside_x] = IGNORED


def crop_boxes(
    boxes: npt.ArrayLike, plan: CropPlan, row: int, shape: tuple[int, int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Move boxes of an image into the pixels of its crop.

    Args:
        boxes: (M, 4) x0, y0, x1, y1 in pixels of the image: edges, not centres of pixels.
        plan: Crops of a batch.
        row: Which of them to apply.
        shape: Height and width of the crop in pixels.

    Returns:
        (M, 4) boxes within the crop, and (M,) whether anything of each is left.
    """
    given = np.asarray(boxes, np.float64).reshape(-1, 4)
    x, y, width, height = plan.source[row].tolist()
    scale = plan.scaled[row] / np.array([width, height])  # (2,)
    offset = np.array([x, y]) * scale + plan.cut[row]  # (2,)
    moved = given * np.tile(scale, 2) - np.tile(offset, 2)
    # parts outside the region are gone, even where padding makes room for them
    region = np.stack([-plan.cut[row], plan.scaled[row] - plan.cut[row]])  # (2, 2)
    low = np.maximum(region[0], 0)
    high = np.minimum(region[1], shape[::-1])
    moved = np.clip(moved, np.tile(low, 2), np.tile(high, 2))
    if plan.flip[row]:
        moved[:, [0, 2]] = shape[1] - moved[:, [2, 0]]
    return moved, (moved[:, 2] > moved[:, 0]) & (moved[:, 3] > moved[:, 1])


def _nearest(
    count: int, cut: int, scaled: int, source: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Source pixel of each output pixel along one axis, and whether there is one; (count,) both."""
    at = np.arange(count, dtype=np.int64) + cut
    # the centre of the output pixel, in exact integers: floor((at + 1/2) * source / scaled)
    pixel = (2 * at + 1) * source // (2 * scaled)
    return np.clip(pixel, 0, source - 1), (at >= 0) & (at < scaled)


def _without_palette(data: bytes) -> tuple[bytes, int]:
    """The PNG with its indices as gray, and the factor that a decoder widens them by."""
    bits, colour = data[24], data[25]
    if colour != _PALETTE:
        return data, _SPREAD.get(bits, 1) if colour == _GRAY else 1
    header = data[16:25] + bytes([_GRAY]) + data[26:29]
    parts: list[Any] = [_PNG, _chunk(b"IHDR", header)]
    at = 33
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] not in _COLOURS:
            parts.append(memoryview(data)[at : at + 12 + length])
        at += 12 + length
    return b"".join(parts), _SPREAD.get(bits, 1)


def _chunk(name: bytes, content: bytes) -> bytes:
    body = name + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
