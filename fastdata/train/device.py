"""Where training runs, by which kernels, and where its random numbers come from."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fastdata.device.transfer import usable_device
from fastdata.plan import rng
from fastdata.train.precision import float32_multiplied
from fastdata.train.recipe import Recipe


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device as torch has it, with its index; CUDA where there is one, if None.

    Under torchrun, CUDA without an index is the GPU of the rank's number on its node, or the only
    GPU where the launcher shows each process one.

    Raises:
        OptionError: This machine lacks it.
    """
    name = str(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if name == "cuda" and "LOCAL_RANK" in os.environ and torch.cuda.device_count() != 1:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    return usable_device(name)


@contextmanager
def kernels(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Let the device compute as a recipe wants it, and put its settings back on leaving."""
    cudnn = torch.backends.cudnn
    strict = torch.are_deterministic_algorithms_enabled()
    settings = cudnn.benchmark, cudnn.deterministic
    if recipe.deterministic:  # read when cuBLAS starts
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        torch.use_deterministic_algorithms(recipe.deterministic)
        cudnn.benchmark, cudnn.deterministic = not recipe.deterministic, recipe.deterministic
        if device.type == "cuda":
            torch.cuda.set_device(device)
        with float32_multiplied(tf32=recipe.tf32):
            yield
    finally:
        torch.use_deterministic_algorithms(strict)
        cudnn.benchmark, cudnn.deterministic = settings


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch, and put its random state back on leaving."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def seed_rank(seed: int, rank: int) -> None:
    """Give each rank but the first random numbers of its own, once all have the same weights."""
    if rank:
        torch.manual_seed(rng.key("rank", seed, rank))


def random_state(device: torch.device) -> torch.Tensor:
    """The random state of torch for steps on ``device``: (B,) uint8, on the device."""
    state = torch.get_rng_state()
    if device.type == "cuda":
        state = torch.cat([state, torch.cuda.get_rng_state(device)])
    return state.to(device)


def set_random_state(state: torch.Tensor, device: torch.device) -> None:
    """Go on from :func:`random_state`."""
    host = len(torch.get_rng_state())
    state = state.cpu()  # cloned below: torch crashes on a state that is a view with an offset
    torch.set_rng_state(state[:host].clone())
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[host:].clone(), device)
