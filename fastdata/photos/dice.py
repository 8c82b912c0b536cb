"""The random numbers of one picture, and angles, both the same on every machine.

Numbers come from the raw stream of Philox, which numpy keeps stable (NEP 19), through single IEEE
operations: no distribution and no transcendental function whose last bit depends on the processor
or the version.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]

TURN = 1024  # angles are in 1/1024 turns


class Dice:
    """A stream of random numbers; each call takes the next ones."""

    def __init__(self, key: int) -> None:
        self._bits = np.random.Philox(key=key)

    def bytes(self, height: int, width: int) -> U8:
        """Uniform bytes, shape (height, width)."""
        size = height * width
        words = np.asarray(self._bits.random_raw(size // 8 + 1)).astype("<u8")
        return words.view(np.uint8)[:size].reshape(height, width)

    def uniform(self, count: int, low: float = 0.0, high: float = 1.0) -> F64:
        """``count`` numbers in [low, high)."""
        words = np.asarray(self._bits.random_raw(count))
        unit = np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64)
        return low + (high - low) * unit

    def spread(self, count: int) -> F64:
        """``count`` bell-shaped numbers: mean 0, deviation 1, at most 3.5 (four uniforms' sum)."""
        a, b, c, d = self.uniform(4 * count).reshape(4, count)
        return (a + b + c + d - 2.0) * math.sqrt(3.0)

    def between(self, low: float, high: float) -> float:
        """One number in [low, high)."""
        return float(self.uniform(1, low, high)[0])

    def below(self, limit: int) -> int:
        """One integer in [0, limit)."""
        return int(self.between(0, limit))

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.between(0, 1) < probability

    def quantile(self, *values: float) -> float:
        """One number whose quantiles, at equal steps from 0 to 1, are the given values."""
        steps = np.linspace(0, 1, len(values))
        return float(np.interp(self.between(0, 1), steps, np.array(values)))


@cache
def _table() -> F64:
    """Cosines of the 1024 angles, rounded to 2**-20: the last bit of libm's differs by platform."""
    unit = 2.0**20
    turns = [2 * math.pi * step / TURN for step in range(TURN)]
    return np.array([round(unit * math.cos(turn)) / unit for turn in turns])


def cosine(angle: npt.NDArray[np.int64]) -> F64:
    """Cosine of angles in 1/1024 turns, of the same shape."""
    return _table()[angle % TURN]


def sine(angle: npt.NDArray[np.int64]) -> F64:
    """Sine of angles in 1/1024 turns, of the same shape."""
    return cosine(angle - TURN // 4)
