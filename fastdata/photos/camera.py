"""Sizes, optics and JPEG settings in the mix that photographs of ImageNet have.

The mix was measured on a sample of 250 of its photographs. Two thirds of them were resized by a
photo-sharing site: the long side is 500 pixels, quality 96 without subsampling. The rest comes
from anywhere on the web: all sizes, and mostly quality 60 to 95 with 4:2:0.
"""

import math
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.photos.dice import Dice
from fastdata.photos.scene import Optics

U8 = npt.NDArray[np.uint8]

_SHARED = 0.67  # share of pictures from the photo-sharing site
_SMALLEST = 16  # pixels a side, whatever the scale
# Long sides in pixels at equal steps of probability.
_WEB_SIDES = (
    *(135, 160, 230, 260, 300, 350, 400, 400, 450, 475),
    *(500, 500, 500, 500, 560, 600, 600, 730, 800, 840, 1300),
)
# From the smoothest pictures to the richest; chosen so that bytes have the mean and the quartiles
# that photographs have (bench/photos.py).
_OPTICS = (
    (0.1, 0.34, 0.58, 0.83, 1.45),  # detail
    (0.2, 0.45, 0.75, 1.2, 2.9),  # noise
    (0.7, 0.45, 0.33, 0.3, 0.3),  # blur
)
_SAMPLING = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
}


class Shot(NamedTuple):
    """How one picture is taken and stored.

    Attributes:
        height: In pixels.
        width: In pixels.
        optics: How much detail it holds.
        quality: Of the JPEG, 1 to 100.
        sampling: Of chroma: "4:4:4", "4:2:2", "4:2:0", or "" for a grayscale picture.
    """

    height: int
    width: int
    optics: Optics
    quality: int
    sampling: str


def aim(dice: Dice, scale: float) -> Shot:
    """Draw the settings of one picture, its sides multiplied by ``scale``."""
    shared = dice.chance(_SHARED)
    if shared:
        longer = 500.0 if dice.chance(0.98) else dice.between(200, 500)
        ratio = dice.quantile(0.5, 0.664, 0.666, 0.668, 0.75, 0.75, 0.75, 0.75, 0.85, 1.0)
        quality, sampling = 96, "" if dice.chance(0.03) else "4:4:4"
    else:
        longer = dice.quantile(*_WEB_SIDES)
        ratio = dice.quantile(0.5, 0.66, 0.68, 0.72, 0.75, 0.75, 0.8, 0.9, 1.0)
        quality, sampling = _web_quality(dice)
    sides = [max(_SMALLEST, round(scale * side)) for side in (longer, longer * ratio)]
    width, height = sides[::-1] if dice.chance(0.24) else sides
    optics = _optics(dice, math.sqrt(height * width), 1.0 if shared else 0.75)
    return Shot(height, width, optics, quality, sampling)


def develop(picture: U8, shot: Shot) -> bytes:
    """JPEG bytes of a picture in (luma, Cr, Cb), uint8, shape (height, width, 3)."""
    settings = [cv2.IMWRITE_JPEG_QUALITY, shot.quality]
    if not shot.sampling:
        return cv2.imencode(".jpg", picture[..., 0], settings)[1].tobytes()
    settings += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLING[shot.sampling]]
    bgr = cv2.cvtColor(picture, cv2.COLOR_YCrCb2BGR)
    return cv2.imencode(".jpg", bgr, settings)[1].tobytes()


def _web_quality(dice: Dice) -> tuple[int, str]:
    kind = dice.between(0, 1)
    if kind < 0.26:
        return round(dice.quantile(80, 80, 86, 86, 91, 91, 92, 94, 99)), "4:4:4"
    quality = round(dice.quantile(60, 69, 72, 75, 75, 75, 75, 80, 80, 84, 85, 91, 95, 100))
    return quality, "4:2:2" if kind < 0.275 else "4:2:0"


def _optics(dice: Dice, side: float, share: float) -> Optics:
    """From smooth and soft to busy and noisy; all three go together, as they do with light.

    Small pictures hold more shapes a pixel, and get less detail to weigh the same a pixel.
    """
    rich = dice.between(0, 1)
    steps = np.linspace(0, 1, 5)
    detail, noise, blur = (
        float(np.interp(rich, steps, row)) * dice.between(0.8, 1.25) for row in _OPTICS
    )
    share *= float(np.interp(side, [100, 433, 1200], [0.5, 1.0, 1.2]))
    return Optics(detail * share, noise * share, blur)
