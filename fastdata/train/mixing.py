"""Augmentation of whole batches on the device, as a recipe has it."""

from typing import Any

import torch

from fastdata.batch.batch import Augment
from fastdata.device.augment import RandomErasing
from fastdata.errors import MissingExtraError
from fastdata.train.recipe import Recipe


class Augmentation:
    """Random erasing by image, then MixUp or CutMix by batch, whichever of them are on."""

    def __init__(self, recipe: Recipe) -> None:
        """Take the switches; :meth:`prepare` comes before the first batch.

        Raises:
            MissingExtraError: MixUp or CutMix is on, and torchvision is not installed.
        """
        self._steps: list[Augment] = [RandomErasing(recipe.erasing)] if recipe.erasing else []
        self._alphas = {"MixUp": recipe.mixup, "CutMix": recipe.cutmix}
        self._v2 = _transforms() if any(self._alphas.values()) else None

    def prepare(self, classes: int) -> None:
        """Say how many classes there are; mixed labels are (N, classes) shares."""
        mixes = [
            getattr(self._v2, name)(num_classes=classes, alpha=alpha)
            for name, alpha in self._alphas.items()
            if alpha
        ]
        if self._v2 is not None:
            self._steps.append(self._v2.RandomChoice(mixes) if len(mixes) > 1 else mixes[0])

    def __call__(
        self, images: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Augment (N, 3, H, W) images and (N,) labels; random numbers are torch's own."""
        for step in self._steps:
            images, labels = step(images, labels)
        return images, labels


def _transforms() -> Any:
    try:
        from torchvision.transforms import v2
    except ImportError as error:
        raise MissingExtraError(
            "mixup and cutmix need torchvision; install it with: pip install 'fastdata[train]'"
        ) from error
    return v2
