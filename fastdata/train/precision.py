"""The floating-point type of the forward pass."""

import torch

from fastdata.errors import OptionError
from fastdata.train.recipe import AMP

_TYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def amp_dtype(amp: str, device: torch.device) -> torch.dtype | None:
    """Floating-point type of the forward pass, or None for float32 throughout.

    Raises:
        OptionError: An unknown name, or fp16 on a device other than CUDA.
    """
    if amp not in _TYPES:
        raise OptionError(f"amp must be one of {', '.join(AMP)}, not {amp!r}")
    if amp == "fp16" and device.type != "cuda":
        raise OptionError(f"amp 'fp16' needs a CUDA device, not {device.type}; use 'bf16' there")
    return _TYPES[amp]
