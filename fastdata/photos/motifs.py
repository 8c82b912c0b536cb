"""What the classes differ in: outlines of shapes, and textures to fill them."""

from functools import cache
from itertools import product
from operator import itemgetter

import cv2
import numpy as np
import numpy.typing as npt

from fastdata.photos.dice import TURN, Dice, cosine, sine

U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

SHAPES = (
    *("pebbles", "leaves", "bricks", "stars", "blossoms"),
    *("crystals", "rings", "moons", "crosses", "ribbons"),
)
TEXTURES = (
    *("speckled", "veined", "grained", "striped", "dotted"),
    *("checked", "wavy", "ringed", "banded", "woven"),
)

# Shapes from pink to violet: the ones that look alike get colours far apart.
BY_TONE = (
    *("rings", "bricks", "moons", "crosses", "leaves"),
    *("crystals", "ribbons", "pebbles", "stars", "blossoms"),
)

CORNERS = 48  # points of an outline
TILE = 256  # side of a texture; a power of two, so that coordinates wrap with a mask
LITTER = 512  # side of the litter, a power of two too
_LEAVES = 24_000  # cover five sixths of the litter
_FINE_BITS = 4  # of the coordinates that OpenCV draws


@cache
def outlines() -> F64:
    """Closed outlines round the origin, of radius about 1, in the order of SHAPES: (10, 48, 2).

    The first axis is the long one. Rings are outlines that walk round the hole as well.
    """
    turn = np.arange(CORNERS) * TURN // CORNERS
    lap = np.append(np.arange(CORNERS // 2 - 1) * TURN // (CORNERS // 2 - 1), 0)
    half = np.arange(CORNERS // 2) * (TURN // 2) // (CORNERS // 2 - 1)
    sickle = 1.1 * _pairs(cosine(half), sine(half))
    along = np.linspace(-1.5, 1.5, CORNERS // 2)
    swing = 0.45 * sine((along * TURN / 4.5).astype(np.int64))
    star = np.arange(10) * TURN // 10
    arm, core = 1.0, 0.32
    cross = [(arm, core), (core, core), (core, arm), (-core, arm), (-core, core), (-arm, core)]
    shapes = {
        "pebbles": _polar(turn, 1 + 0.08 * cosine(3 * turn) + 0.06 * sine(2 * turn)),
        "leaves": _pairs(cosine(turn), 0.5 * sine(turn) * np.abs(sine(turn))),
        "bricks": _polygon([(1, 0.5), (-1, 0.5), (-1, -0.5), (1, -0.5)]),
        "stars": _polygon(_polar(star, np.where(np.arange(10) % 2, 0.42, 1.1))),
        "blossoms": _polar(turn, 0.78 + 0.3 * cosine(5 * turn)),
        "crystals": _polygon([(1.1, 0), (0.2, 0.6), (-0.9, 0.35), (-0.7, -0.5), (0.3, -0.55)]),
        "rings": np.concatenate([_polar(lap, 1.0), _polar(-lap, 0.5)]),
        "moons": np.concatenate([sickle, sickle[::-1] * np.array([1, 0.4])]) - np.array([0, 0.5]),
        "crosses": _polygon(cross + [(-x, -y) for x, y in cross]),
        "ribbons": np.concatenate([_pairs(along, swing + 0.22), _pairs(along, swing - 0.22)[::-1]]),
    }
    return np.stack([shapes[name] for name in SHAPES])


@cache
def textures() -> I16:
    """Textures in the order of TEXTURES: (10, 256, 256), from -127 to 127.

    The middle of a shape is at (128, 128). Most repeat eight times across the tile.
    """
    y, x = np.mgrid[:TILE, :TILE] - TILE // 2
    dice = Dice(0)
    spots = _smooth(dice, (9, 9))
    streaks = _smooth(dice, (101, 5))
    around = np.sqrt(x * x + y * y).astype(np.int64)
    squares = (x // 32 + y // 32) % 2 == 0
    tiles = {
        "speckled": 14 * spots,
        "veined": _wave(8 * x + 8 * np.abs(y)) // 2 + np.where(np.abs(y) < 4, 110, 0),
        "grained": _wave(6 * y + 5 * streaks) * 3 // 4,
        "striped": _wave(8 * x) * 2,
        "dotted": (_wave(8 * x) + _wave(8 * y)) * 3 // 2 - 80,
        "checked": _wave(4 * x) * _wave(4 * y) // 30,
        "wavy": _wave(8 * y + _wave(4 * x) // 2),
        "ringed": _wave(8 * around) * 3 // 2,
        "banded": _wave(4 * y) * 3 + _wave(12 * y) // 2,
        "woven": np.where(squares, _wave(16 * x), _wave(16 * y)),
    }
    return np.stack([np.clip(tiles[name], -127, 127).astype(np.int16) for name in TEXTURES])


@cache
def litter() -> I16:
    """Dead leaves of 1 to 20 pixels with sharp edges, (512, 512), -128 to 127; the edges wrap."""
    dice = Dice(1)
    kind = dice.uniform(_LEAVES, 0, len(SHAPES)).astype(np.int64)
    angle = dice.uniform(_LEAVES, 0, TURN).astype(np.int64)
    x, y = dice.uniform(2 * _LEAVES, 0, LITTER).reshape(2, _LEAVES)
    grey = np.clip(128 + 60 * dice.spread(_LEAVES), 0, 255).astype(np.int64)
    radius = power_law(dice, _LEAVES, 1.3, 20.0)
    corners = place_outlines(kind, x, y, radius, angle)[:, ::4]
    canvas = np.full((LITTER, LITTER), 128, np.uint8)
    for index, shift in _wrapped(corners, LITTER << _FINE_BITS):
        fill(canvas, corners[index] + shift, int(grey[index]))
    return canvas.astype(np.int16) - np.int16(128)


def _wrapped(corners: I32, side: int) -> list[tuple[int, I32]]:
    """Index and offset of each polygon, from back to front, wherever it shows in a wrapped square.

    Most show once; those that cross an edge show again at the opposite one.
    """
    low, high = corners.min(1), corners.max(1)  # (N, 2)
    shown = []
    for offset in product((-side, 0, side), repeat=2):
        shift = np.array(offset, np.int32)
        inside = ((low + shift < side) & (high + shift > 0)).all(1)
        shown += [(index, shift) for index in np.flatnonzero(inside).tolist()]
    return sorted(shown, key=itemgetter(0))


def power_law(dice: Dice, count: int, low: float, high: float) -> F64:
    """Radii between ``low`` and ``high`` whose density falls as the third power."""
    keep: F64 = 1 - dice.uniform(count) * (1 - (low / high) ** 2)
    return low / np.sqrt(keep)


def place_outlines(
    kind: I64, x: F64, y: F64, radius: F64, angle: I64, aspect: F64 | float = 1.0
) -> I32:
    """Corners in the units of ``fill``, shape (N, 48, 2), of N shapes; arguments as in Crowd."""
    outline = outlines()[kind]  # (N, 48, 2)
    along = outline[..., 0] * radius[:, None]
    across = outline[..., 1] * (radius * aspect)[:, None]
    cos, sin = cosine(angle)[:, None], sine(angle)[:, None]
    corners_x = x[:, None] + along * cos - across * sin
    corners_y = y[:, None] + along * sin + across * cos
    return np.floor(np.stack([corners_x, corners_y], 2) * (1 << _FINE_BITS)).astype(np.int32)


def fill(canvas: U8, corners: I32, value: int) -> None:
    """Paint one polygon of ``place_outlines``, without antialiasing."""
    cv2.fillPoly(canvas, [corners], value, shift=_FINE_BITS)


def _pairs(x: F64, y: F64) -> F64:
    return np.stack([x, y], 1)


def _polar(turn: I64, radius: F64 | float) -> F64:
    return _pairs(radius * cosine(turn), radius * sine(turn))


def _polygon(corners: list[tuple[float, float]] | F64) -> F64:
    """Straight outline; corners are repeated to make up the number of points."""
    points = np.array(corners, np.float64)
    return points[np.arange(CORNERS) * len(points) // CORNERS]


def _wave(phase: I64) -> I64:
    """Cosine of amplitude 127 and period 256."""
    return np.rint(127 * cosine(phase * (TURN // 256))).astype(np.int64)


def _smooth(dice: Dice, kernel: tuple[int, int]) -> I64:
    """Noise blurred by (width, height), mean about 0, that wraps at the edges."""
    noise = np.tile(dice.bytes(TILE, TILE), (3, 3))
    return cv2.blur(noise, kernel)[TILE : 2 * TILE, TILE : 2 * TILE].astype(np.int64) - 128
