"""Antialiased bilinear resize of a window, for installations without the native core.

Usual images are resized as a whole, which torch does fast. If that would take much memory for a
small window, as with a picture of 1 x 65,000 pixels, only the pixels of the window are computed,
with the weights of the whole resize. Both filters are Pillow's BILINEAR, within 1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import interpolate

Pixels = npt.NDArray[np.uint8]
Values = npt.NDArray[np.float32]

_WHOLE = 1 << 22  # pixels, and values between torch's passes: 12 MB
_OUTPUTS = 16  # computed together: they share most of the source pixels that they need
_VALUES = 1 << 18  # of the source, looked at together


def resize_window(
    region: Pixels, scaled: tuple[int, int], cut: tuple[int, int], out: Pixels
) -> None:
    """Resize a region of an image, and keep a window of it; zero outside the region.

    Args:
        region: (h, w, 3).
        scaled: Width and height that it is resized to.
        cut: x and y of the window in that; may be negative.
        out: (H, W, 3), the window; every pixel is written.
    """
    height, width = region.shape[:2]
    if scaled[0] * max(scaled[1], height) <= _WHOLE:
        _cut(_resize_whole(region, scaled), cut, out)
        return
    across = _Axis(width, scaled[0], cut[0], out.shape[1])
    down = _Axis(height, scaled[1], cut[1], out.shape[0])
    out.fill(0)
    if not (across.count and down.count):
        return
    # the pass that leaves less goes first: a row of 10^8 pixels must not become 224 of them
    if down.count * width <= across.count * height:
        rows = _down(region.reshape(height, width * 3), down)
        planes = np.ascontiguousarray(rows.reshape(-1, width, 3).swapaxes(1, 2))
        values = _across(planes.reshape(-1, width), across)
    else:
        planes = np.ascontiguousarray(region.swapaxes(1, 2))
        rows = _across(planes.reshape(-1, width), across)
        values = _down(rows.reshape(height, -1), down)
    window = out[down.begin : down.begin + down.count, across.begin : across.begin + across.count]
    window[:] = np.rint(values).reshape(down.count, 3, across.count).swapaxes(1, 2)


def _resize_whole(region: Pixels, size: tuple[int, int]) -> Pixels:
    """Resize to (width, height)."""
    width, height = size
    if region.shape[:2] == (height, width):
        return region
    pixels = torch.from_numpy(np.ascontiguousarray(region))  # (h, w, 3) uint8
    scaled = interpolate(
        pixels.permute(2, 0, 1)[None], (height, width), mode="bilinear", antialias=True
    )
    return np.asarray(scaled[0].permute(1, 2, 0).numpy(), np.uint8)  # (height, width, 3)


def _cut(region: Pixels, cut: tuple[int, int], out: Pixels) -> None:
    """Copy the window of ``out``'s size that starts at ``cut`` (x, y); zero outside the region."""
    left, top = (max(0, -c) for c in cut)
    x, y = (max(0, c) for c in cut)
    window = region[y : y + out.shape[0] - top, x : x + out.shape[1] - left]
    height, width = window.shape[:2]
    if (height, width) != out.shape[:2]:
        out.fill(0)
    out[top : top + height, left : left + width] = window


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

    def weights(self, most: int) -> Iterator[tuple[slice, slice, Values]]:
        """Outputs, source pixels and the weights between them, (k, n), a few at a time.

        Several parts of the source, each of ``most`` pixels or fewer, may belong to an output; its
        weights then sum to one over all of them.
        """
        support = max(1.0, self.factor)
        for start in range(0, self.count, _OUTPUTS):
            outputs = np.arange(start, min(start + _OUTPUTS, self.count))
            middle = (self.cut + self.begin + outputs + 0.5) * self.factor  # (k,)
            first = max(0, math.floor(middle[0] - support))
            last = min(self.source, math.ceil(middle[-1] + support))
            parts = [slice(at, min(at + most, last)) for at in range(first, last, most)]
            # the sum is over all source pixels, even if they come in parts
            found = _triangle(parts[0], middle, support)
            total = found.sum(1, keepdims=True)
            for part in parts[1:]:
                total += _triangle(part, middle, support).sum(1, keepdims=True)
            for part in parts:
                weights = found if len(parts) == 1 else _triangle(part, middle, support)
                weights = (weights / total).astype(np.float32)
                yield slice(start, start + len(outputs)), part, weights


def _triangle(part: slice, middle: npt.NDArray[Any], support: float) -> npt.NDArray[Any]:
    distance = np.abs(np.arange(part.start, part.stop) + 0.5 - middle[:, None])  # (k, n)
    return np.asarray(np.maximum(0, 1 - distance / support))


def _down(pixels: Pixels | Values, axis: _Axis) -> Values:
    """Filter columns: (source, m) becomes (count, m)."""
    out = np.zeros((axis.count, pixels.shape[1]), np.float32)
    for outputs, part, weights in axis.weights(max(1, _VALUES // pixels.shape[1])):
        out[outputs] += weights @ pixels[part].astype(np.float32, copy=False)
    return out


def _across(pixels: Pixels | Values, axis: _Axis) -> Values:
    """Filter rows: (m, source) becomes (m, count)."""
    out = np.zeros((pixels.shape[0], axis.count), np.float32)
    for outputs, part, weights in axis.weights(max(1, _VALUES // pixels.shape[0])):
        out[:, outputs] += pixels[:, part].astype(np.float32, copy=False) @ weights.T
    return out
