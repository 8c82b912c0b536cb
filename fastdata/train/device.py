"""Where training runs: the device, its kernels and their precision, and random numbers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from fastdata.errors import OptionError
from fastdata.loaders.options import usable_device
from fastdata.plan import rng
from fastdata.train.recipe import AMP, Recipe

_TYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device to train on, with its index; None is CUDA if there is a GPU, otherwise the CPU.

    Under torchrun, CUDA without an index is the GPU of the local rank, or the only GPU where the
    launcher shows each process one.

    Raises:
        OptionError: This machine has no such device.
    """
    name = str(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if name == "cuda" and "LOCAL_RANK" in os.environ and torch.cuda.device_count() != 1:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    return usable_device(name)


def amp_dtype(amp: str, device: torch.device) -> torch.dtype | None:
    """Floating-point type of the forward pass; None is float32 without autocast.

    Raises:
        OptionError: An unknown name, or fp16 on a device other than CUDA.
    """
    if amp not in _TYPES:
        raise OptionError(f"amp must be one of {', '.join(AMP)}, not {amp!r}")
    if amp == "fp16" and device.type != "cuda":
        raise OptionError(f"amp 'fp16' needs a CUDA device, not {device.type}; use 'bf16' there")
    return _TYPES[amp]


@contextmanager
def kernels(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Choose kernels and float32 precision as the recipe says, and restore the settings on exit."""
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
        with _float32_precision(tf32=recipe.tf32):
            yield
    finally:
        torch.use_deterministic_algorithms(strict)
        cudnn.benchmark, cudnn.deterministic = settings


@contextmanager
def _float32_precision(*, tf32: bool) -> Iterator[None]:
    """Multiply float32 in TF32 or in full, in matrices and convolutions; torch's defaults mix both.

    torch 2.9 and later have two sets of switches for this, and reading the older ones raises where
    they disagree with the newer ones. So both are set, and restored on exit as far as they could
    be read. https://docs.pytorch.org/docs/stable/notes/cuda.html (TensorFloat-32)
    """
    cudnn = torch.backends.cudnn
    matmul = allowed = None
    with suppress(RuntimeError):
        matmul = torch.get_float32_matmul_precision()
    with suppress(RuntimeError):
        allowed = cudnn.allow_tf32
    by_kind = _precision_switches()
    before = [switch.fp32_precision for switch in by_kind]
    try:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        cudnn.allow_tf32 = tf32
        for switch in by_kind:
            switch.fp32_precision = "tf32" if tf32 else "ieee"
        yield
    finally:
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        if allowed is not None:
            cudnn.allow_tf32 = allowed
        for switch, value in zip(by_kind, before, strict=True):
            switch.fp32_precision = value


def _precision_switches() -> list[Any]:
    """The newer switches, by kind of operation; none before torch 2.9."""
    backends: Any = torch.backends  # torch's annotations lack some of them
    if not hasattr(backends.cudnn, "conv"):
        return []
    return [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch, and restore its random state on exit."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def seed_rank(seed: int, rank: int) -> None:
    """Give every rank but the first its own random numbers, once all have the same weights."""
    if rank:
        torch.manual_seed(rng.key("rank", seed, rank))


def random_state(device: torch.device) -> torch.Tensor:
    """The random state of torch for steps on ``device``: (B,) uint8, on the device."""
    state = torch.get_rng_state()
    if device.type == "cuda":
        state = torch.cat([state, torch.cuda.get_rng_state(device)])
    return state.to(device)


def set_random_state(state: torch.Tensor, device: torch.device) -> None:
    """Restore what :func:`random_state` returned."""
    host = len(torch.get_rng_state())
    state = state.cpu()  # cloned below: torch crashes on a state that is a view with an offset
    torch.set_rng_state(state[:host].clone())
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[host:].clone(), device)
