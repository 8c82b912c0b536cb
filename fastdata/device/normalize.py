"""uint8 pixels to normalised floats, on the device that trains."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch

from fastdata.device.slots import asking_for

_PIECE = 1 << 19  # numbers at a time on the CPU: float32 scratch that stays in its cache

Kernel = Callable[[torch.Tensor, torch.Tensor, list[float], list[float]], None]


class Normalization(NamedTuple):
    """Mean and standard deviation of each of the three channels, of pixels scaled to [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The ImageNet statistics that torchvision's models are trained with."""


class Normalize:
    """``(x / 255 - mean) / std`` as one multiplication and one addition a pixel.

    Both factors are computed in float64 and rounded once, and the arithmetic is float32 whatever
    the output: the result is torchvision's float pipeline within rounding. On CUDA it is one kernel
    where Triton works, and a few of torch's elsewhere.
    """

    def __init__(
        self, statistics: Normalization, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Prepare the factors for ``device``; ``dtype`` is the floating-point type to give."""
        mean, std = (torch.tensor(x, dtype=torch.float64, device="cpu") for x in statistics)  # (3,)
        self._scale = (1 / (255 * std)).float().to(device)
        self._shift = (-mean / std).float().to(device)
        self._factors = self._scale.tolist(), self._shift.tolist()
        self._dtype = dtype
        self._kernel: Kernel | None = None
        if device.type == "cuda":
            self._kernel = self._compiled()

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Normalise a batch on the device, in the current stream.

        Args:
            pixels: (N, 3, H, W) uint8; best in channels_last, else it is copied.

        Returns:
            (N, 3, H, W) in channels_last, new memory.

        Raises:
            DeviceError: There is no memory for it.
        """
        size = pixels.numel() * self._dtype.itemsize
        with asking_for(size, f"{pixels.device}: no memory for normalised images"):
            pixels = pixels.contiguous(memory_format=torch.channels_last)
            out = torch.empty_like(pixels, dtype=self._dtype, memory_format=torch.channels_last)
            if self._kernel is not None:
                self._kernel(pixels, out, *self._factors)
            else:
                self._plain(pixels, out)
        return out

    def _plain(self, pixels: torch.Tensor, out: torch.Tensor) -> None:
        """The same by torch's own operations, on the CPU a few images at a time."""
        _, channels, height, width = pixels.shape
        rows, found = (x.permute(0, 2, 3, 1).flatten(2) for x in (pixels, out))  # (N, H, W * 3)
        scale, shift = self._scale.repeat(width), self._shift.repeat(width)  # (W * 3,)
        step = len(pixels) if pixels.is_cuda else _PIECE // (channels * height * width)
        for source, target in zip(rows.split(step or 1), found.split(step or 1), strict=True):
            floats = target if self._dtype == torch.float32 else target.float()
            floats.copy_(source)
            torch.addcmul(shift, floats, scale, out=floats)
            target.copy_(floats)

    def _compiled(self) -> Kernel | None:
        """The Triton kernel if it works here; it is compiled now, not in the first batch."""
        try:
            from fastdata.device.normalize_kernel import normalize
        except ImportError:  # Triton has no builds for this platform
            return None
        one = torch.zeros(1, 3, 16, 16, dtype=torch.uint8, device=self._scale.device)
        one = one.contiguous(memory_format=torch.channels_last)
        try:
            normalize(one, torch.empty_like(one, dtype=self._dtype), *self._factors)
        except Exception as error:  # noqa: BLE001 - no C compiler, no ptxas, an old GPU ...
            warnings.warn(
                f"Triton cannot compile here, torch normalises in several kernels: {error}",
                RuntimeWarning,
                stacklevel=6,
            )
            return None
        return normalize
