"""From a crowd of shapes to pixels: who owns each, its texture, light and colour.

Whatever belongs to a shape is a table of 256 entries, looked up through the map of owners, so
that a picture costs a few passes over its pixels, however many shapes it holds.
"""

from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.photos import motifs
from fastdata.photos.crowd import Crowd
from fastdata.photos.dice import Dice, cosine, sine
from fastdata.photos.motifs import LITTER, TILE

U8 = npt.NDArray[np.uint8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

_FINEST = 10.0  # tile pixels per pixel; at 32 a period, finer textures would alias
_FIXED = 256  # coordinates are integers with 8 fractional bits


class Light(NamedTuple):
    """Where light falls to, in whole pixels: the offset of a shadow; and the height of bevels."""

    dx: int
    dy: int
    bevel: int


class Palette(NamedTuple):
    """Colours that the shapes of a layer share out; the first is the commonest. Equal lengths."""

    hue: F64  # 1/1024 turns in the (Cr, Cb) plane
    chroma: F64  # distance from grey
    luma: F64


class Layer(NamedTuple):
    """Pixels of a crowd, all of shape (height, width); of no meaning where ``owner`` is 0.

    Attributes:
        owner: 0 = ground, otherwise 1 + index of the shape in front.
        luma: int16, not clipped.
        red: Cr less 128.
        blue: Cb less 128.
        shadow: 255 where something in front keeps the light off.
        grain: Amplitude of fine grain that suits the shape, 0 to 128.
    """

    owner: U8
    luma: I16
    red: I16
    blue: I16
    shadow: U8
    grain: I16


def stretched(picture: U8, height: int, width: int) -> U8:
    """Bilinear, with the one rounding that does not depend on the processor."""
    result = cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR_EXACT)
    return np.asarray(result, np.uint8)


def fractal(dice: Dice, height: int, width: int, octaves: int) -> I16:
    """Noise of shape (height, width), mean 0, with as much variance in each octave (1/f)."""
    total = np.full((height, width), -128 * octaves, np.int16)
    for octave in range(octaves):
        grid = dice.bytes(max(2, height >> octave), max(2, width >> octave))
        total += stretched(grid, height, width)
    return total


def litter(dice: Dice, height: int, width: int) -> I16:
    """Fine structure with sharp edges, of shape (height, width): -128 to 127, mean about 0.

    A window on one large picture of tiny leaves, at a random place, size and side.
    """
    steps = dice.uniform(2, 0.8, 2.0)
    y, x = (
        (np.arange(length) * step + dice.below(LITTER)).astype(np.int64) % LITTER
        for length, step in zip((height, width), steps, strict=True)
    )
    leaves = motifs.litter()
    window: I16 = (leaves.T if dice.chance(0.5) else leaves)[y[:, None], x]
    return window


def render(
    dice: Dice, crowd: Crowd, palette: Palette, light: Light, detail: float, shape: tuple[int, int]
) -> Layer:
    """Paint a crowd into pixels of the given (height, width); ``detail`` = 1 is typical."""
    count = len(crowd.x)
    owner = _owners(crowd, *shape)
    look = _Lookup(owner)
    period = min(shape) * dice.between(0.055, 0.085) * dice.uniform(count, 0.85, 1.15)
    pattern = _pattern(crowd, look, period)
    contrast = (0.5 + 0.5 * detail) * dice.uniform(count, 30, 66)

    # Half of the pictures have one main colour, the others share four.
    colours = 1 if dice.chance(0.5) else len(palette.hue)
    pick = dice.uniform(count, 0, colours).astype(np.int64)
    pick[dice.uniform(count) < 0.5] = 0
    hue = (palette.hue[pick] + 30 * dice.spread(count)).astype(np.int64)
    chroma = palette.chroma[pick] * dice.uniform(count, 0.6, 1.4)

    def plane(base: F64, share: F64 | float) -> I16:
        return look.short(base) + (pattern * look.short(contrast * share) >> 7)

    luma = plane(np.clip(palette.luma[pick] + 28 * dice.spread(count), 15, 240), 1.0)
    luma += _shade(crowd, look, light, dice.between(8, 30))
    luma += _bevels(owner, light, dice.between(2, 9))
    red = plane(chroma * cosine(hue), dice.uniform(count, -0.25, 0.25))
    blue = plane(chroma * sine(hue), dice.uniform(count, -0.25, 0.25))
    grain = look.short(dice.uniform(count, 0.2, 1.0) * 128)
    return Layer(owner, luma, red, blue, _shadow(owner, light), grain)


class _Lookup:
    """Values of shapes spread over the pixels that they own; 0 on the ground."""

    def __init__(self, owner: U8) -> None:
        self.owner = owner
        self.x = np.arange(owner.shape[1], dtype=np.int32)  # (width,)
        self.y = np.arange(owner.shape[0], dtype=np.int32)[:, None]  # (height, 1)

    def spread(self, values: F64 | I64, dtype: Any) -> Any:
        table = np.zeros(256, dtype)
        table[1 : len(values) + 1] = values
        return cv2.LUT(self.owner, table)

    def short(self, values: F64) -> I16:
        plane: I16 = self.spread(values, np.int16)
        return plane

    def plane(self, along_x: F64, along_y: F64, crowd: Crowd, middle: int = 0) -> I32:
        """For each shape a linear function of the pixel that is ``middle`` at its centre."""
        a, b = along_x.astype(np.int64), along_y.astype(np.int64)
        start = middle - a * crowd.x - b * crowd.y
        total: I32 = self.spread(a, np.int32) * self.x
        total += self.spread(b, np.int32) * self.y
        total += self.spread(start, np.int32)
        return total


def _owners(crowd: Crowd, height: int, width: int) -> U8:
    owner = np.zeros((height, width), np.uint8)
    place = crowd.x, crowd.y, crowd.radius, crowd.angle, crowd.aspect
    for index, corners in enumerate(motifs.place_outlines(crowd.kind, *place), 1):
        motifs.fill(owner, corners, index)
    return owner


def _pattern(crowd: Crowd, look: _Lookup, period: F64) -> I16:
    """Texture of each pixel in its shape's own coordinates, with a period in pixels."""
    period = np.minimum(period, 0.7 * crowd.radius)
    scale = np.minimum(32 / period, _FINEST) * _FIXED
    cos, sin = scale * cosine(crowd.angle), scale * sine(crowd.angle)
    middle = TILE // 2 * _FIXED
    along = look.plane(cos, sin, crowd, middle)
    across = look.plane(-sin, cos, crowd, middle)
    tile = look.spread(crowd.texture * TILE * TILE, np.int32)
    pattern: I16 = motifs.textures().ravel()[tile | (across & 0xFF00) | ((along >> 8) & 0xFF)]
    return pattern


def _shade(crowd: Crowd, look: _Lookup, light: Light, depth: float) -> I16:
    """Brighter where a shape faces the light, by ``depth`` grey levels at its edge."""
    slope = -depth * 64 / crowd.radius
    plane = look.plane(slope * np.sign(light.dx), slope * np.sign(light.dy), crowd)
    return np.asarray(np.clip(plane >> 6, -50, 50), np.int16)


def _bevels(owner: U8, light: Light, strength: float) -> I16:
    """Light and dark sides of rounded edges."""
    inside = (owner == _moved(owner, 1, 0)) & (owner == _moved(owner, 0, 1))
    height = cv2.distanceTransform(inside.view(np.uint8), cv2.DIST_L1, 3, dstType=cv2.CV_8U)
    height = cv2.blur(np.minimum(height, light.bevel), (3, 3)).astype(np.int16)
    towards = _moved(height, -2 * np.sign(light.dx), -2 * np.sign(light.dy))
    return np.asarray((height - towards) * np.int16(strength), np.int16)


def _shadow(owner: U8, light: Light) -> U8:
    """Soft shadows: a later shape is in front, and keeps light off what is behind it."""
    cast = (_moved(owner, light.dx, light.dy) > owner).view(np.uint8) * np.uint8(255)
    soft = (abs(light.dx) + abs(light.dy)) // 2 | 1
    return np.asarray(cv2.blur(cast, (soft, soft)), np.uint8)


def _moved(plane: Any, dx: int, dy: int) -> Any:
    """``plane[y + dy, x + dx]``, with its edge repeated."""
    height, width = plane.shape
    edge = cv2.copyMakeBorder(plane, abs(dy), abs(dy), abs(dx), abs(dx), cv2.BORDER_REPLICATE)
    return edge[abs(dy) + dy :, abs(dx) + dx :][:height, :width]
