"""A moving average of the weights."""

import copy
from typing import Any

import torch
from torch import nn

_FAST = 10  # the first decays are 1/10, 2/11, 3/12 ...: early weights are soon forgotten


class Average:
    """Exponential moving average of a model's weights and of its floating-point statistics.

    The decay of update t, from 0, is ``min(decay, (1 + t) / (10 + t))``, as in TensorFlow's
    ``ExponentialMovingAverage`` with ``num_updates``: without it a short run's average would be
    that of its first weights.

    Attributes:
        module: A model with the averaged weights, in evaluation mode.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        """Start with a copy of ``module``, whose weights are averaged from now on."""
        self.module = copy.deepcopy(module).eval().requires_grad_(requires_grad=False)
        self._decay = decay
        self._updates = 0
        # the same tensors all the time: an optimiser writes weights in place
        ours, theirs = self.module.state_dict().values(), module.state_dict().values()
        pairs = list(zip(ours, theirs, strict=True))
        self._averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self._counts = [pair for pair in pairs if not pair[0].is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now; does not wait for the device."""
        decay = min(self._decay, (1 + self._updates) / (_FAST + self._updates))
        self._updates += 1
        ours, theirs = map(list, zip(*self._averaged, strict=True))
        torch._foreach_lerp_(ours, theirs, 1 - decay)
        for mine, other in self._counts:
            mine.copy_(other)

    def state_dict(self) -> dict[str, Any]:
        """Averaged weights, and how many updates are in them."""
        return {"updates": self._updates, "weights": self.module.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state_dict`."""
        self._updates = state["updates"]
        self.module.load_state_dict(state["weights"])
