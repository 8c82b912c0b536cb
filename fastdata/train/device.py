"""Where training runs, and where its random numbers come from."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fastdata.errors import OptionError


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch, and put its random state back on leaving."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device as torch has it, with its index; CUDA where there is one, if None.

    Raises:
        OptionError: This machine lacks it.
    """
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=chosen).device
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise OptionError(f"device {str(device)!r} cannot be used here: {error}") from error
