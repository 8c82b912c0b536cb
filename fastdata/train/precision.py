"""The floating-point type of the forward pass, and how exactly float32 is multiplied."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

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


@contextmanager
def float32_multiplied(*, tf32: bool) -> Iterator[None]:
    """Multiply float32 in TF32 or in full, in matrices and convolutions; torch's defaults mix both.

    torch 2.9 and later have two sets of switches for this, and reading the older ones raises where
    they disagree with the newer ones. So both are set, and put back on leaving as far as they could
    be read. https://docs.pytorch.org/docs/stable/notes/cuda.html (TensorFloat-32)
    """
    cudnn = torch.backends.cudnn
    matmul = allowed = None
    with suppress(RuntimeError):
        matmul = torch.get_float32_matmul_precision()
    with suppress(RuntimeError):
        allowed = cudnn.allow_tf32
    by_kind = _switches()
    kept = [switch.fp32_precision for switch in by_kind]
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
        for switch, value in zip(by_kind, kept, strict=True):
            switch.fp32_precision = value


def _switches() -> list[Any]:
    """The newer switches by kind of operation; none before torch 2.9."""
    backends: Any = torch.backends  # torch's annotations lack some of them
    if not hasattr(backends.cudnn, "conv"):
        return []
    return [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul]
