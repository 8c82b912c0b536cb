"""A picture from random numbers: background, foreground, light, lens and sensor."""

import math
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.photos import crowd, layer
from fastdata.photos.dice import Dice, cosine, sine

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]

# Hues of nature at equal steps of probability, from pink by orange, yellow, green and blue to
# violet, in 1/1024 turns of the (Cr, Cb) plane. A tone is a place on this scale, from 0 to 1.
_NATURAL = np.array([40, -53, -110, -150, -190, -240, -340, -420, -560, -680, -740, -800.0])
_TYPICAL_SIDE = 433  # root of the mean area in pixels; offsets grow with the picture
_FAR = 4  # the background is out of focus, so it is painted this much smaller


class Optics(NamedTuple):
    """How much fine detail a picture holds, which decides how well it compresses.

    Attributes:
        detail: Amplitude of texture and grain, 1 = typical.
        noise: Deviation of the sensor's noise in grey levels, about.
        blur: Deviation of the lens's point spread in pixels, over 0.
    """

    detail: float
    noise: float
    blur: float


def paint(dice: Dice, look: crowd.Look, optics: Optics, height: int, width: int) -> U8:
    """A picture of the class of ``look``: uint8, (height, width, 3), luma, Cr and Cb."""
    light = _light(dice, math.sqrt(height * width) / _TYPICAL_SIDE)
    arrange = (crowd.horizon, crowd.field, crowd.group)[dice.below(3)]
    far = _background(dice, height, width, sky=arrange is crowd.horizon and dice.chance(0.7))
    shapes = arrange(dice, look, height, width)
    colours = _palette(dice, look.tone if dice.chance(0.9) else None)
    near = layer.render(dice, shapes, colours, light, optics.detail, (height, width))

    shown = near.owner > 0
    luma = np.where(shown, near.luma, far[..., 0]).astype(np.int32)
    luma = luma * (65536 - near.shadow.astype(np.int32) * int(256 * dice.between(0.3, 0.7))) >> 16
    grain = np.where(shown, near.grain, np.int16(128 * dice.between(0, 0.25)))
    luma += _roughness(dice, height, width) * grain * int(16 * optics.detail) >> 16
    red = np.where(shown, near.red + np.int16(128), far[..., 1])
    blue = np.where(shown, near.blue + np.int16(128), far[..., 2])
    return _expose(dice, _stack(luma, red, blue), optics)


def _roughness(dice: Dice, height: int, width: int) -> I32:
    """Fine structure: mostly litter, whose edges are sharp, and a little cloud."""
    clouds = layer.fractal(dice, height, width, 4).astype(np.int32)
    return 34 * layer.litter(dice, height, width) + 2 * clouds


def _light(dice: Dice, unit: float) -> layer.Light:
    """Light from above more often than from below, in pixels that grow with the picture."""
    reach = max(1, round(dice.between(3, 8) * unit))
    dx = reach if dice.chance(0.5) else -reach
    dy = reach if dice.chance(0.8) else -reach
    return layer.Light(dx, dy, bevel=max(2, round(dice.between(3, 9) * unit)))


def _hues(tones: F64) -> F64:
    """Angles of tones; tones beyond an end of the scale are folded back."""
    folded = 1 - np.abs(1 - np.abs(tones))
    steps = np.linspace(0, 1, len(_NATURAL))
    return np.asarray(np.interp(folded, steps, _NATURAL), np.float64)


def _palette(dice: Dice, tone: float | None, vivid: float = 1.0) -> layer.Palette:
    """Four colours near a tone, the first nearest; ``None`` = any tone."""
    middle = dice.between(0, 1) if tone is None else tone
    away = dice.spread(4) * np.array([0.06, 0.08, 0.15, 0.3])
    chroma = dice.uniform(4, 14, 44) * dice.between(0.5, 1.2) * vivid * np.array([1, 0.8, 0.8, 0.6])
    return layer.Palette(_hues(middle + away), chroma, 130 + 50 * dice.spread(4))


def _background(dice: Dice, height: int, width: int, *, sky: bool) -> U8:
    """What is out of focus: a sky, or shapes of any kind before one colour."""
    size = max(8, height // _FAR), max(8, width // _FAR)
    top, bottom = 130 + 55 * dice.spread(2)
    ramp = np.linspace(top, bottom, size[0])[:, None]
    clouds = layer.fractal(dice, *size, 7) * dice.between(0.02, 0.12)
    hue = _hues(dice.uniform(1)).astype(np.int64)
    chroma = dice.between(0, 25)
    luma = ramp + clouds
    red, blue = np.full(size, chroma * cosine(hue)), np.full(size, chroma * sine(hue))
    if not sky:
        shapes = crowd.blobs(dice, *size)
        colours = _palette(dice, None, vivid=0.6)
        behind = layer.render(dice, shapes, colours, layer.Light(1, 1, 2), 0.4, size)
        shown = behind.owner > 0
        luma = np.where(shown, behind.luma, luma)
        red, blue = np.where(shown, behind.red, red), np.where(shown, behind.blue, blue)
    side = 3 + 2 * dice.below(4)
    soft = cv2.blur(cv2.blur(_stack(luma, red + 128, blue + 128), (side, side)), (side, side))
    return layer.stretched(np.asarray(soft, np.uint8), height, width)


def _expose(dice: Dice, picture: U8, optics: Optics) -> U8:
    """Lens, uneven light and sensor."""
    height, width = picture.shape[:2]
    picture = np.asarray(cv2.GaussianBlur(picture, (5, 5), optics.blur), np.uint8)
    lamp = np.full((height, width), 500, np.int32)
    for side, weight in ((3, 10), (6, 5), (12, 3)):
        lamp += weight * layer.stretched(dice.bytes(side, side), height, width).astype(np.int32)
    noise = dice.bytes(height, width).astype(np.int32) + dice.bytes(height, width) - 255
    lit = picture[..., 0].astype(np.int32) * lamp * 6 >> 14
    luma = lit + (noise * int(optics.noise * 16) >> 11)
    picture[..., 0] = np.clip(luma, 0, 255)
    return picture


def _stack(*planes: npt.NDArray[np.generic]) -> U8:
    return np.stack([np.clip(plane, 0, 255).astype(np.uint8) for plane in planes], 2)
