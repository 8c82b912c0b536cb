"""What a loader yields."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastdata.plan.crop import CropPlan

Augment = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""What may change a batch on its device: ``augment(images, labels) -> (images, labels)``."""


class Batch:
    """A batch of images; unpacks as ``images, labels = batch``.

    Attributes:
        images: (N, 3, H, W) in channels_last memory: uint8 in host memory, or normalised floats
            on the loader's device. With V views of each sample (V * N, 3, H, W): all first views,
            then all second ones.
        views: The V views, each (N, 3, H, W): parts of ``images``.
        labels: (N,) int64, on the device of ``images``; (N, classes) floats where ``augment`` made
            shares of them.
        ids: (N,) int64, rows in the catalog, in host memory.
        valid: (N,) bool, on the device of ``images``; False where a sample only fills up the
            batch and must not be counted.
        masks: (V * N, H, W) uint8 on the device of ``images``, each cut as its image is; None
            unless the loader was given ``mask``.
        fields: By name, the bytes of each of the N samples' field; None where it has none.
        crops: Where each of the V * N images was cut out, for ``crop_boxes`` of
            :mod:`fastdata.batch.targets`; None unless ``mask`` or ``fields`` were given.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: npt.NDArray[np.int64],
        valid: torch.Tensor,
        keys: Callable[[npt.NDArray[np.int64]], list[str]],
        views: int = 1,
        masks: torch.Tensor | None = None,
        fields: Mapping[str, list[bytes | None]] | None = None,
        crops: CropPlan | None = None,
    ) -> None:
        """Put a batch together; ``keys`` looks up the names of ids when they are asked for."""
        self.images = images
        self.labels = labels
        self.ids = ids
        self.valid = valid
        self.views: tuple[torch.Tensor, ...] = images.chunk(views)
        self.masks = masks
        self.fields = fields or {}
        self.crops = crops
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
