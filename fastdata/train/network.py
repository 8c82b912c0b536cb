"""A model in the forms that training calls."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fastdata.errors import OptionError
from fastdata.train import ranks


def check_switches(
    device: torch.device, *, compile: bool, checkpointing: bool, sync_bn: bool
) -> None:
    """The switches fit the device and each other.

    Raises:
        OptionError: They do not.
    """
    if sync_bn and device.type != "cuda":
        raise OptionError(f"sync_bn needs a CUDA device, not {device.type}; leave it off")
    if checkpointing and compile:
        raise OptionError(
            "checkpointing and compile exclude each other; compiled models recompute activations "
            "by torch._functorch.config.activation_memory_budget"
        )


def on_device(
    module: nn.Module, device: torch.device, layout: torch.memory_format, *, sync_bn: bool
) -> nn.Module:
    """The model on its device and in its layout, with batch statistics over all ranks if wanted."""
    module = module.to(device, memory_format=layout)  # type: ignore[call-overload]
    if sync_bn and ranks.count() > 1:
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return module


def distributed(module: nn.Module, device: torch.device) -> DistributedDataParallel | None:
    """The model with gradients that are averaged over the ranks; None where there is one rank."""
    if ranks.count() == 1:
        return None
    ids = [device.index] if device.type == "cuda" else None
    # Buffers are batch norm's running statistics, which no training step reads. Each rank keeps its
    # own; validation and checkpoints take the first rank's.
    return DistributedDataParallel(
        module, device_ids=ids, gradient_as_bucket_view=True, broadcast_buffers=False
    )
