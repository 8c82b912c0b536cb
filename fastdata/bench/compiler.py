"""Whether ``torch.compile`` works on this machine."""

import torch

_REASON = 200  # characters of a compiler's error that are passed on


def no_compiler(device: torch.device) -> str:
    """Why a small function cannot be compiled for the device; empty where it can.

    On a CPU this needs a C++ compiler, on CUDA Triton and a C compiler.
    """
    try:
        torch.compile(_small)(torch.ones(8, device=device))
    except (RuntimeError, OSError) as error:  # all that the compiler raises derives from them
        return " ".join(str(error).split())[:_REASON]
    return ""


def _small(values: torch.Tensor) -> torch.Tensor:
    return values * 2 + 1
