"""Learning rates: pure functions from the step to the rate."""

import math
from collections.abc import Callable
from functools import partial

from fastdata.errors import OptionError

Schedule = Callable[[int], float]
"""From the step, counted from 0 over all epochs, to its learning rate."""


# The defaults of torch.optim.lr_scheduler.OneCycleLR.
_START = 25.0  # the first rate is the peak divided by this
_END = 1e4  # the last rate is the first divided by this


def one_cycle(step: int, *, steps: int, peak: float, rise: float = 0.3) -> float:
    """Rate of the one-cycle policy: up along half a cosine, then down along another to nothing.

    The values are those of ``torch.optim.lr_scheduler.OneCycleLR``.

    Args:
        step: Step from 0 to ``steps - 1``.
        steps: Steps of the whole training.
        peak: Highest rate.
        rise: Share of the steps that go up, below 1.
    """
    top, last = rise * steps - 1, steps - 1  # top lies between two steps where it is no integer
    low = peak / _START
    if step < top:
        return _between(low, peak, step / top)
    return _between(peak, low / _END, (step - top) / (last - top))


def cosine(step: int, *, steps: int, peak: float, warmup: int) -> float:
    """Rate of a straight line up to ``peak``, then half a cosine down towards zero.

    Step ``warmup`` is the first at the peak; the step after the last one would have rate zero, as
    in ``CosineAnnealingLR`` with ``T_max = steps - warmup``.

    Args:
        step: Step from 0 to ``steps - 1``.
        steps: Steps of the whole training.
        peak: Highest rate.
        warmup: Steps before the peak, fewer than ``steps``.
    """
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    return _between(peak, 0.0, (step - warmup) / (steps - warmup))


def rates(name: str, *, steps: int, peak: float, rise: float) -> Schedule:
    """The schedule of this name over ``steps`` steps with a highest rate of ``peak``.

    Args:
        name: ``"onecycle"`` or ``"cosine"``.
        steps: Steps of the whole training.
        peak: Highest rate.
        rise: Share of the steps before the highest rate, below 1.

    Raises:
        OptionError: There is no schedule of this name.
    """
    if name == "onecycle":
        return partial(one_cycle, steps=steps, peak=peak, rise=rise)
    if name == "cosine":
        return partial(cosine, steps=steps, peak=peak, warmup=int(rise * steps))
    raise OptionError(f"schedule must be 'onecycle' or 'cosine', not {name!r}")


def _between(first: float, last: float, share: float) -> float:
    """From ``first`` at share 0 to ``last`` at share 1 along half a cosine."""
    return last + (first - last) / 2 * (1 + math.cos(math.pi * share))
