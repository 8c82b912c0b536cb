"""Which shapes a picture holds, and where.

Sizes follow the power law of the dead-leaves model, under which opaque shapes that hide one
another have the spectrum of natural scenes (Lee, Mumford, Huang 2001).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.photos.dice import Dice
from fastdata.photos.motifs import SHAPES, TEXTURES, power_law

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

MOST = 255  # shapes of a crowd: the map of owners is uint8, and 0 is the ground


class Look(NamedTuple):
    """What the pictures of one class have in common.

    Attributes:
        shape: Index into SHAPES.
        texture: Index into TEXTURES.
        angle: Round which long axes point, in 1/1024 turns.
        tone: Where colours gather on a scale from pink (0) by orange, yellow, green and blue to
            violet (1).
    """

    shape: int
    texture: int
    angle: int
    tone: float


class Crowd(NamedTuple):
    """Shapes from back to front; each array has one entry a shape, at most MOST.

    Attributes:
        kind: Index into SHAPES.
        texture: Index into TEXTURES.
        x: Centre in pixels.
        y: Centre in pixels.
        radius: In pixels.
        angle: In 1/1024 turns.
        aspect: Width across the long axis, relative to the outline's.
    """

    kind: I64
    texture: I64
    x: F64
    y: F64
    radius: F64
    angle: I64
    aspect: F64


def field(dice: Dice, look: Look, height: int, width: int) -> Crowd:
    """Shapes all over, as on a forest floor."""
    small = min(height, width)
    count = 40 + dice.below(160)
    radius = power_law(dice, count, dice.between(0.06, 0.12) * small, 0.45 * small)
    radius = radius[np.argsort(-radius * dice.uniform(count, 0.5, 1.5), kind="stable")]
    x = dice.uniform(count, -0.05, 1.05) * width
    y = dice.uniform(count, -0.05, 1.05) * height
    return _scatter(dice, look, x, y, radius, strays=dice.between(0.0, 0.12))


def horizon(dice: Dice, look: Look, height: int, width: int) -> Crowd:
    """Shapes on a plain that recedes to a horizon: the farther up, the smaller."""
    small = min(height, width)
    count = 40 + dice.below(160)
    top = dice.between(0.1, 0.5)
    depth = np.sort(dice.uniform(count, 0, 1.1))  # 0 = far
    radius = power_law(dice, count, dice.between(0.06, 0.11) * small, 0.4 * small)
    x = dice.uniform(count, -0.05, 1.05) * width
    y = (top + (1 - top) * depth) * height
    return _scatter(dice, look, x, y, radius * (0.4 + 0.9 * depth), strays=dice.between(0.0, 0.12))


def group(dice: Dice, look: Look, height: int, width: int) -> Crowd:
    """A few large shapes together, as the subject of a portrait."""
    small = min(height, width)
    count = 8 + dice.below(30)
    radius = -np.sort(-power_law(dice, count, dice.between(0.1, 0.16) * small, 0.4 * small))
    x = (dice.between(0.35, 0.65) + dice.between(0.12, 0.25) * dice.spread(count)) * width
    y = (dice.between(0.4, 0.7) + dice.between(0.12, 0.25) * dice.spread(count)) * height
    return _scatter(dice, look, x, y, radius, strays=dice.between(0.0, 0.12))


def blobs(dice: Dice, height: int, width: int) -> Crowd:
    """A few shapes of any kind, large, to be seen out of focus."""
    small = min(height, width)
    count = 5 + dice.below(60)
    radius = power_law(dice, count, 0.08 * small, 0.5 * small)
    x, y = dice.uniform(count) * width, dice.uniform(count) * height
    return _scatter(dice, Look(0, 0, 0, 0.0), x, y, radius, strays=1.0)


def _scatter(dice: Dice, look: Look, x: F64, y: F64, radius: F64, *, strays: float) -> Crowd:
    """Give each place a shape, most of them of the class; ``strays`` is the share of others."""
    count = len(x)
    own = dice.uniform(count) >= strays
    kind = dice.uniform(count, 0, len(SHAPES)).astype(np.int64)
    texture = dice.uniform(count, 0, len(TEXTURES)).astype(np.int64)
    tilt = 30 * dice.spread(1) + dice.spread(count) * dice.between(10, 70)
    return Crowd(
        np.where(own, look.shape, kind),
        np.where(own, look.texture, texture),
        x,
        y,
        np.maximum(radius, 1.5),
        look.angle + tilt.astype(np.int64),
        dice.uniform(count, 0.75, 1.15),
    )
