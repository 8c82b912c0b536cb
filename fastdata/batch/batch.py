"""What a loader yields."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastdata.plan.crop import CropPlan

Augment = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""What may change a batch on its device: ``augment(images, labels) -> (images, labels)``."""


@dataclass(eq=False, repr=False)
class Batch:
    """A batch of images; unpacks as ``images, labels = batch``.

    Attributes:
        images: (N, 3, H, W) in channels_last memory: uint8 in host memory, or normalised floats
            on the loader's device. With V views of each sample (V * N, 3, H, W): all first views,
            then all second ones.
        labels: (N,) int64, on the device of ``images``; (N, classes) floats if ``augment`` mixed
            them.
        ids: (N,) int64, rows in the catalog, in host memory.
        valid: (N,) bool, on the device of ``images``; False where a sample only fills up the
            batch and must not be counted.
        view_count: V.
        masks: (V * N, H, W) uint8 on the device of ``images``, each cut as its image is; None
            unless the loader was given ``mask``.
        fields: By name, the bytes of each of the N samples' field; None where it has none.
        crops: Where each of the V * N images was cut out, for ``crop_boxes`` of
            :mod:`fastdata.batch.targets`; None unless ``mask`` or ``fields`` were given.
    """

    images: torch.Tensor
    labels: torch.Tensor
    ids: npt.NDArray[np.int64]
    valid: torch.Tensor
    _keys: Callable[[npt.NDArray[np.int64]], list[str]]
    view_count: int = 1
    masks: torch.Tensor | None = None
    fields: Mapping[str, list[bytes | None]] = field(default_factory=dict)
    crops: CropPlan | None = None

    @property
    def views(self) -> tuple[torch.Tensor, ...]:
        """The V views, each (N, 3, H, W): parts of ``images``."""
        return self.images.chunk(self.view_count)

    @property
    def keys(self) -> list[str]:
        """Names of the N samples, looked up now."""
        return self._keys(self.ids)

    def __iter__(self) -> Iterator[Any]:
        """Unpack as exactly two: images, labels."""
        return iter((self.images, self.labels))

    def __repr__(self) -> str:
        """Shape, dtype and device."""
        return f"Batch({tuple(self.images.shape)}, {self.images.dtype}, {self.images.device})"
