"""Antialiased bilinear resize of a window, for installations without the native core.

The filter is that of Pillow's BILINEAR, as in csrc/resize.h, in floating point: within 1 of both.
Only the pixels of the window are computed, with the weights of the whole resize, and only the part
of the image that they depend on is looked at.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Values = npt.NDArray[np.float32]

_OUTPUTS = 16  # computed together: more of them share more of what they look at
_VALUES = 1 << 18  # of the source, looked at together


def resize_window(
    region: Pixels, scaled: tuple[int, int], cut: tuple[int, int], out: Pixels
) -> None:
    """Resize a region of an image, and keep a window of it; zero where that lies outside.

    Args:
        region: (h, w, 3).
        scaled: Width and height that it is resized to.
        cut: x and y of the window in that; may be negative.
        out: (H, W, 3), the window; every pixel is written.
    """
    across = _Axis(region.shape[1], scaled[0], cut[0], out.shape[1])
    down = _Axis(region.shape[0], scaled[1], cut[1], out.shape[0])
    out.fill(0)
    if not (across.count and down.count):
        return
    # the pass that leaves less goes first: a row of 10^8 pixels must not become 224 of them
    if down.count * region.shape[1] <= across.count * region.shape[0]:
        values = _resample(_resample(region, down).swapaxes(0, 1), across).swapaxes(0, 1)
    else:
        values = _resample(_resample(region.swapaxes(0, 1), across).swapaxes(0, 1), down)
    window = out[down.begin : down.begin + down.count, across.begin : across.begin + across.count]
    window[:] = np.clip(np.rint(values), 0, 255)


@dataclass(frozen=True)
class _Axis:
    """One axis of a window."""

    source: int
    scaled: int
    cut: int
    out: int

    @property
    def begin(self) -> int:
        """First output within the resized image."""
        return min(max(0, -self.cut), self.out)

    @property
    def count(self) -> int:
        """Number of them."""
        return max(0, min(self.out, self.scaled - self.cut) - self.begin)

    @property
    def factor(self) -> float:
        """Source pixels to an output pixel."""
        return self.source / self.scaled

    def middle(self, outputs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Where outputs lie in the source; the first one is number 0."""
        return np.asarray((self.cut + self.begin + outputs + 0.5) * self.factor, np.float64)


def _resample(pixels: npt.NDArray[np.uint8] | Values, axis: _Axis) -> Values:
    """Filter along the first axis: (source, m, 3) becomes (count, m, 3)."""
    others = pixels.shape[1] * 3
    together = max(1, _VALUES // others)
    support = max(1.0, axis.factor)
    out = np.empty((axis.count, others), np.float32)
    for start in range(0, axis.count, _OUTPUTS):
        some = axis.middle(np.arange(start, min(start + _OUTPUTS, axis.count)))  # (k,)
        first = max(0, math.floor(some[0] - support))
        last = min(axis.source, math.ceil(some[-1] + support))
        sums = np.zeros((len(some), others), np.float32)
        total = np.zeros((len(some), 1))
        for at in range(first, last, together):
            places = np.arange(at, min(at + together, last))  # (n,)
            distance = np.abs(places + 0.5 - some[:, None])  # (k, n)
            weights = np.maximum(0, 1 - distance / support)
            block = np.ascontiguousarray(pixels[at : at + len(places)], np.float32)
            sums += weights.astype(np.float32) @ block.reshape(len(places), others)
            total += weights.sum(axis=1, keepdims=True)
        out[start : start + len(some)] = sums / total
    return out.reshape(axis.count, -1, 3)
