"""What a loader yields."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class Batch:
    """A batch of images; unpacks as ``images, labels = batch``.

    Attributes:
        images: (N, 3, H, W) in channels_last memory: uint8 in host memory, or normalised floats
            on the loader's device. With V views of each sample (V * N, 3, H, W): all first views,
            then all second ones.
        views: The V views, each (N, 3, H, W): parts of ``images``.
        labels: (N,) int64, on the device of ``images``.
        ids: (N,) int64, rows in the catalog, in host memory.
        valid: (N,) bool, on the device of ``images``; False where a sample only fills up the
            batch and must not be counted.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: npt.NDArray[np.int64],
        valid: torch.Tensor,
        keys: Callable[[npt.NDArray[np.int64]], list[str]],
        views: int = 1,
    ) -> None:
        """Put a batch together; ``keys`` looks up the names of ids when they are asked for."""
        self.images = images
        self.labels = labels
        self.ids = ids
        self.valid = valid
        self.views: tuple[torch.Tensor, ...] = images.chunk(views)
        self._keys = keys

    @property
    def keys(self) -> list[str]:
        """Names of the N samples."""
        return self._keys(self.ids)

    def __iter__(self) -> Iterator[Any]:
        """Unpack as exactly two: images, labels."""
        return iter((self.images, self.labels))

    def __repr__(self) -> str:
        """Shape, dtype and device."""
        return f"Batch({tuple(self.images.shape)}, {self.images.dtype}, {self.images.device})"
