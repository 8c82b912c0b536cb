"""The optimisers of the reference step."""

from collections.abc import Sequence
from typing import Any

import torch

from fastdata.errors import OptionError

_FUSED = ("cpu", "cuda")


def make_optimizer(
    name: str,
    groups: Sequence[dict[str, Any]],
    *,
    momentum: float,
    fused: bool,
    device: torch.device,
) -> torch.optim.Optimizer:
    """An optimiser whose rate is set in every step.

    Args:
        name: ``"sgd"``, with Nesterov momentum where there is momentum, or ``"adamw"`` with
            torch's defaults.
        groups: Parameters, each group with its ``weight_decay``.
        momentum: Of SGD.
        fused: Update all weights in one kernel, where the device has it.
        device: Where the parameters are.

    Raises:
        OptionError: There is no optimiser of this name.
    """
    one_kernel = fused and device.type in _FUSED
    if name == "sgd":
        sgd = torch.optim.SGD(
            groups, lr=0.0, momentum=momentum, nesterov=momentum > 0, fused=one_kernel
        )
        if momentum > 0:
            # No momentum yet, as for torch in its first step. Where that is fused and the loss
            # scaler skips it, torch 2.15 leaves momentum as the memory it found.
            for group in sgd.param_groups:
                for weight in group["params"]:
                    sgd.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        return sgd
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, fused=one_kernel)
    raise OptionError(f"optimizer must be 'sgd' or 'adamw', not {name!r}")
