"""The tiles of a contact sheet: a thumbnail, with the frame of a training crop."""

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.plan.crop import Crop

Pixels = npt.NDArray[np.uint8]

SIDE = 160  # pixels

_GROUND, _FRAME = (236, 237, 239), (240, 120, 20)  # RGB
_DIMMED = 0.45  # brightness outside of the crop


def tile(image: Pixels, sample: int, crops: Crop | None, seed: int) -> Pixels:
    """(SIDE, SIDE, 3) RGB: the whole image, scaled to fit and centred."""
    height, width = image.shape[:2]
    scale = SIDE / max(width, height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(
        image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    )
    if crops is not None:
        left, top, right, bottom = cropped(crops, (width, height), sample, seed)
        x, y = round(left * size[0]), round(top * size[1])
        ends = max(x + 1, round(right * size[0])), max(y + 1, round(bottom * size[1]))
        inner = small[y : ends[1], x : ends[0]].copy()
        small = (small * _DIMMED).astype(np.uint8)
        small[y : ends[1], x : ends[0]] = inner
        cv2.rectangle(small, (x, y), (ends[0] - 1, ends[1] - 1), _FRAME, 2)
    square = np.full((SIDE, SIDE, 3), _GROUND, np.uint8)
    x, y = ((SIDE - side) // 2 for side in size)
    square[y : y + size[1], x : x + size[0]] = small
    return square


def cropped(
    crops: Crop, size: tuple[int, int], sample: int, seed: int
) -> tuple[float, float, float, float]:
    """The region of an image that training sees in the first epoch.

    Args:
        crops: Training's crop.
        size: Width and height of the image in pixels.
        sample: Sample id.
        seed: The loader's seed.

    Returns:
        Left, top, right and bottom edge as shares of the image's width and height, from 0 to 1.
    """
    plan = crops.plan(np.array([size], np.int64), np.array([sample]), seed=seed, epoch=0)
    (region,), (scaled,), (cut,) = plan.source, plan.scaled, plan.cut
    output = np.array(crops.shape[::-1])
    # A pixel of the resampled region is region / scaled pixels of the image.
    first = (region[:2] + cut * region[2:] / scaled) / size
    last = (region[:2] + (cut + output) * region[2:] / scaled) / size
    left, top, right, bottom = np.clip([*first, *last], 0, 1).tolist()
    return left, top, right, bottom


def crossed_out() -> Pixels:
    """The tile of an image that cannot be decoded."""
    square = np.full((SIDE, SIDE, 3), _GROUND, np.uint8)
    for start, end in (((0, 0), (SIDE, SIDE)), ((SIDE, 0), (0, SIDE))):
        cv2.line(square, start, end, _FRAME, 2)
    return square
