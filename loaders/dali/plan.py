"""A plan of crops as the numbers that DALI's operators take: pure arithmetic over a batch."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.plan.crop import CropPlan

I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]


class Placement(NamedTuple):
    """How DALI makes N crops: decode ``box``, resample a part of it, pad, mirror.

    Attributes:
        box: (N, 4) int32 x, y, width, height: pixels of the image to decode.
        size: (N, 2) float32 height and width that the part is resampled to.
        start: (N, 2) float32 y and x where the part begins, in pixels of the box.
        end: (N, 2) float32 y and x where it ends.
        position: (N, 2) float32 y and x: share of the room before the output's window, as
            ``crop_mirror_normalize`` has it. 0 where nothing is padded.
        mirror: (N,) int32, 1 to mirror from left to right.
    """

    box: I32
    size: F32
    start: F32
    end: F32
    position: F32
    mirror: I32


def place(plan: CropPlan, shape: tuple[int, int]) -> Placement:
    """What DALI does for each crop of a plan.

    ``resize`` takes a region of interest and, unlike a crop before it, filters across its edges
    as far as the box goes. So the box is the crop's own region, whose edges the plan's filter
    does not cross either, less what lies beyond the reach of the filter around the window.

    Args:
        plan: Crops of N images.
        shape: Height and width of the output.
    """
    window = np.array(shape[::-1], np.int64)
    low = np.maximum(plan.cut, 0)  # (N, 2) x, y of what is seen, in the resampled region
    high = np.minimum(plan.cut + window, plan.scaled)
    factor = plan.source[:, 2:] / plan.scaled  # source pixels to an output pixel
    start, end = low * factor, high * factor
    reach = np.ceil(np.maximum(factor, 1)) + 1  # the triangle's half width, and one for rounding
    first = np.maximum(np.floor(start - reach), 0).astype(np.int64)
    last = np.minimum(np.ceil(end + reach), plan.source[:, 2:]).astype(np.int64)
    room = high - low - window  # (N, 2), negative where it must be padded
    before = np.maximum(-plan.cut, 0) / np.maximum(-room, 1)
    box = np.concatenate([plan.source[:, :2] + first, last - first], axis=1)
    return Placement(
        box.astype(np.int32),
        _yx(high - low),
        _yx(start - first),
        _yx(end - first),
        _yx(before),
        plan.flip.astype(np.int32),
    )


def _yx(xy: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> F32:
    return np.ascontiguousarray(xy[:, ::-1], np.float32)
