"""From gradients to weights: the optimiser, its learning rates, and averaged weights."""

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from fastdata.train.models import parameter_groups
from fastdata.train.recipe import Recipe

Schedule = Callable[[int], float]
"""From a step, counted from 0 over all epochs, to its learning rate."""

_FUSED = ("cpu", "cuda")

# The defaults of torch.optim.lr_scheduler.OneCycleLR.
_START = 25.0  # the first rate is the peak divided by this
_END = 1e4  # the last rate is the first divided by this

_FAST = 10  # the first decays are 1/10, 2/11, 3/12 ...: early weights are soon forgotten


def make_optimizer(
    recipe: Recipe, module: nn.Module, device: torch.device
) -> torch.optim.Optimizer:
    """The recipe's optimiser over a model's weights; every step sets its learning rate."""
    groups = parameter_groups(module, recipe.decay)
    fused = recipe.fused and device.type in _FUSED
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, fused=fused)
    momentum = recipe.momentum
    sgd = torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=momentum > 0, fused=fused)
    if momentum > 0:
        # No momentum yet, as for torch in its first step. Where that is fused and the loss
        # scaler skips it, torch 2.15 leaves momentum as the memory it found.
        for group in sgd.param_groups:
            for weight in group["params"]:
                sgd.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return sgd


def rates(recipe: Recipe, *, steps: int, peak: float) -> Schedule:
    """The recipe's learning rates.

    Args:
        recipe: Its schedule, and how much of it rises.
        steps: Steps of the whole training.
        peak: Highest rate.
    """
    if recipe.schedule == "onecycle":
        return partial(one_cycle, steps=steps, peak=peak, rise=recipe.rise)
    return partial(cosine, steps=steps, peak=peak, warmup=int(recipe.rise * steps))


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
    """Rate of a linear warm-up to ``peak``, then half a cosine down towards zero.

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


def _between(first: float, last: float, share: float) -> float:
    """From ``first`` at share 0 to ``last`` at share 1 along half a cosine."""
    return last + (first - last) / 2 * (1 + math.cos(math.pi * share))


class Average:
    """Exponential moving average of a model's weights and of its floating-point statistics.

    The decay of update t, from 0, is ``min(decay, (1 + t) / (10 + t))``, as in TensorFlow's
    ``ExponentialMovingAverage`` with ``num_updates``: with a fixed decay, a short run's average
    would hardly have left its first weights.

    Attributes:
        module: A model with the averaged weights, in evaluation mode.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        """Start from a copy of ``module``; its later weights are averaged."""
        self.module = copy.deepcopy(module).eval().requires_grad_(requires_grad=False)
        self._decay = decay
        self._updates = 0
        # The tensors can be paired once: an optimiser changes weights in place.
        ours, theirs = self.module.state_dict().values(), module.state_dict().values()
        pairs = list(zip(ours, theirs, strict=True))
        self._averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self._counts = [pair for pair in pairs if not pair[0].is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        """Average the model's present weights in; does not wait for the device."""
        decay = min(self._decay, (1 + self._updates) / (_FAST + self._updates))
        self._updates += 1
        ours, theirs = map(list, zip(*self._averaged, strict=True))
        torch._foreach_lerp_(ours, theirs, 1 - decay)
        for mine, other in self._counts:
            mine.copy_(other)

    def state_dict(self) -> dict[str, Any]:
        """Averaged weights, and the number of updates in them."""
        return {"updates": self._updates, "weights": self.module.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._updates = state["updates"]
        self.module.load_state_dict(state["weights"])
