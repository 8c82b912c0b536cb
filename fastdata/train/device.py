"""Where training runs, and where its random numbers come from."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fastdata.transfer import usable_device


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
    return usable_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
