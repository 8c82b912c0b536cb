"""Crops: the part of each image that is kept, and its scale. Pure arithmetic over a batch.

A plan is integers only, so that it is the same on every machine. Random numbers are keyed by
(seed, epoch, sample id): a sample's crop does not depend on threads, ranks, batch size or resume.
"""

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastdata.errors import OptionError
from fastdata.plan import rng

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

_MAX_SIDE = 65535  # the longest side that a JPEG can have
_ATTEMPTS = 10  # torchvision's number


@dataclass(frozen=True)
class CropPlan:
    """Crops of N images: resample ``source`` to ``scaled``, cut the output window, then flip.

    ``output[y, x] = scaled_region[cut_y + y, cut_x + x]``, zero outside the region.

    Attributes:
        size: (N, 2) int64, width and height of the whole images.
        source: (N, 4) int64, x, y, width, height of the region that is resampled, in pixels of
            the image; the filter does not look past its edges.
        scaled: (N, 2) int64, width and height that the region is resampled to.
        cut: (N, 2) int64, x and y of the output window in the resampled region; may be negative.
        flip: (N,) bool, mirror the output from left to right.
    """

    size: I64
    source: I64
    scaled: I64
    cut: I64
    flip: npt.NDArray[np.bool_]


class Crop(Protocol):
    """What a loader needs of a crop; its ``repr`` and ``flip`` are parts of the loader's state."""

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the output in pixels."""

    @property
    def flip(self) -> float:
        """Probability of a horizontal flip."""

    def plan(self, sizes: I64, ids: I64, *, seed: int, epoch: int) -> CropPlan:
        """Crops for images of the given sizes.

        Args:
            sizes: (N, 2) width and height of each image in pixels.
            ids: (N,) sample ids, which key the random numbers.
            seed: Seed of the run.
            epoch: Epoch, from 0.
        """


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of the image, scaled to one size: torchvision's ``RandomResizedCrop``.

    The part has an area drawn uniformly from ``scale`` (as a share of the image) and an aspect
    ratio drawn log-uniformly from ``ratio``; where ten draws do not fit the image, the largest
    central part within ``ratio`` is taken.

    Args:
        size: Side of the square output in pixels, or (height, width).
        scale: Smallest and largest share of the image's area.
        ratio: Smallest and largest width / height.
        flip: Probability of a horizontal flip.

    Raises:
        OptionError: An argument is out of range.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = field(default=0.0, repr=False)  # a loader's state holds it beside the repr
    shape: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the arguments, and work out the shape."""
        object.__setattr__(self, "shape", _checked_shape(self.size))
        _check_flip(self.flip)
        for name, pair, most in (("scale", self.scale, 1.0), ("ratio", self.ratio, 1e4)):
            if not 0 < pair[0] <= pair[1] <= most:
                raise OptionError(
                    f"{name} must be (low, high) with 0 < low <= high <= {most:g}, found {pair}"
                )

    def plan(self, sizes: I64, ids: I64, *, seed: int, epoch: int) -> CropPlan:
        """Crops for images of the given sizes; see :class:`Crop`."""
        draws = rng.uniform(rng.key("crop", seed, epoch), ids, 2 * _ATTEMPTS + 3)  # (N, 23)
        width, height = self._sizes(sizes, draws[:, : 2 * _ATTEMPTS])
        last = draws[:, 2 * _ATTEMPTS :]  # (N, 3)
        x = np.floor(last[:, 0] * (sizes[:, 0] - width + 1)).astype(np.int64)
        y = np.floor(last[:, 1] * (sizes[:, 1] - height + 1)).astype(np.int64)
        fallback = width < 0
        if fallback.any():
            width[fallback], height[fallback] = self._central(sizes[fallback])
            x[fallback] = (sizes[fallback, 0] - width[fallback]) // 2
            y[fallback] = (sizes[fallback, 1] - height[fallback]) // 2
        return CropPlan(
            size=sizes,
            source=np.stack([x, y, width, height], axis=1),
            scaled=np.tile(np.array(self.shape[::-1], np.int64), (len(ids), 1)),
            cut=np.zeros((len(ids), 2), np.int64),
            flip=last[:, 2] < self.flip,
        )

    def _sizes(self, sizes: I64, draws: F64) -> tuple[I64, I64]:
        """Width and height, each (N,), of the first draw that fits; -1 where none does."""
        low, high = (round(math.log(r) * 2**40) / 2**40 for r in self.ratio)
        area = (sizes[:, 0] * sizes[:, 1]).astype(np.float64)[:, None]  # (N, 1)
        area = area * (self.scale[0] + draws[:, 0::2] * (self.scale[1] - self.scale[0]))  # (N, 10)
        aspect = _exp(low + draws[:, 1::2] * (high - low))  # (N, 10)
        width, height = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
        fits = (width > 0) & (width <= sizes[:, :1]) & (height > 0) & (height <= sizes[:, 1:])
        rows, first = np.arange(len(sizes)), fits.argmax(axis=1)
        found = fits[rows, first]
        return (
            np.where(found, width[rows, first], -1).astype(np.int64),
            np.where(found, height[rows, first], -1).astype(np.int64),
        )

    def _central(self, sizes: I64) -> tuple[I64, I64]:
        """Width and height, each (N,), of the largest part within the ratios."""
        width, height = sizes[:, 0], sizes[:, 1]
        low, high = self.ratio
        narrow, wide = width / height < low, width / height > high
        return (
            np.where(wide, np.rint(height * high), width).astype(np.int64),
            np.where(narrow, np.rint(width / low), height).astype(np.int64),
        )


@dataclass(frozen=True)
class CenterCrop:
    """The middle of the image: torchvision's ``Resize(resize)`` followed by ``CenterCrop(size)``.

    Args:
        size: Side of the square output in pixels, or (height, width).
        resize: Length that the shorter side is scaled to first; None crops the image as it is.
            Where the image is smaller than the output, the rest is zero.
        flip: Probability of a horizontal flip.

    Raises:
        OptionError: An argument is out of range.
    """

    size: int | tuple[int, int]
    resize: int | None = None
    flip: float = field(default=0.0, repr=False)  # a loader's state holds it beside the repr
    shape: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the arguments, and work out the shape."""
        object.__setattr__(self, "shape", _checked_shape(self.size))
        _check_flip(self.flip)
        if self.resize is not None:
            _checked_shape(self.resize)

    def plan(self, sizes: I64, ids: I64, *, seed: int, epoch: int) -> CropPlan:
        """Crops for images of the given sizes; see :class:`Crop`."""
        draws = rng.uniform(rng.key("crop", seed, epoch), ids, 1)  # (N, 1)
        scaled = sizes
        if self.resize is not None:
            short, long = sizes.min(axis=1), sizes.max(axis=1)
            # torchvision truncates the longer side; the product is exact, the quotient rounds once
            long = (self.resize * long / short).astype(np.int64)
            wide = sizes[:, 0] >= sizes[:, 1]
            side = np.full_like(long, self.resize)
            scaled = np.stack([np.where(wide, long, side), np.where(wide, side, long)], axis=1)
        room = scaled - np.array(self.shape[::-1], np.int64)  # (N, 2), negative where it must pad
        cut = np.where(room < 0, -(-room // 2), np.rint(room / 2).astype(np.int64))
        zeros = np.zeros_like(sizes)
        return CropPlan(
            size=sizes,
            source=np.concatenate([zeros, sizes], axis=1),
            scaled=scaled,
            cut=cut,
            flip=draws[:, 0] < self.flip,
        )


def _check_flip(flip: float) -> None:
    if not 0 <= flip <= 1:
        raise OptionError(f"flip is a probability from 0 to 1, found {flip}")


def _checked_shape(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size argument."""
    height, width = (size, size) if isinstance(size, int) else size
    if not (1 <= height <= _MAX_SIDE and 1 <= width <= _MAX_SIDE):
        raise OptionError(f"a crop's sides must be from 1 to {_MAX_SIDE} pixels, found {size}")
    return height, width


def _exp(x: F64) -> F64:
    """e**x by additions and multiplications alone.

    ``np.exp`` may differ in the last bit between CPUs, which would change a crop now and then;
    these operations are exact by IEEE 754 everywhere. |x| / 8 stays under 1.2 for any ratio, where
    24 terms reach the last bit or two.
    """
    x = x / 8
    total = np.ones_like(x)
    for k in range(24, 0, -1):  # 1 + x * total / k; in place takes half as long
        total *= x
        total /= k
        total += 1
    for _ in range(3):
        total *= total
    return total


VALIDATION = CenterCrop(224, resize=256)
"""The usual crop for evaluating ImageNet classifiers; the default of a loader."""
