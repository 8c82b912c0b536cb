"""uint8 pixels to normalised floats, on the device that trains."""

from typing import NamedTuple

import torch


class Normalization(NamedTuple):
    """Mean and standard deviation of each of the three channels, of pixels scaled to [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The ImageNet statistics that torchvision's models are trained with."""


class Normalize:
    """``(x / 255 - mean) / std`` as one multiplication and one addition a pixel.

    Both factors are computed in float64 and rounded once, and the arithmetic is float32 whatever
    the output: the result is torchvision's float pipeline within rounding.
    """

    def __init__(
        self, statistics: Normalization, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Prepare the factors for ``device``; ``dtype`` is the floating-point type to give."""
        mean = torch.tensor(statistics.mean, dtype=torch.float64)[:, None, None]  # (3, 1, 1)
        std = torch.tensor(statistics.std, dtype=torch.float64)[:, None, None]
        self._scale = (1 / (255 * std)).float().to(device)
        self._shift = (-mean / std).float().to(device)
        self._dtype = dtype

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Normalise (N, 3, H, W) uint8 in channels_last; the result keeps the memory format."""
        return torch.addcmul(self._shift, pixels.float(), self._scale).to(self._dtype)
