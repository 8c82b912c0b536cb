"""The data of a run: its loaders, augmentation of whole batches, and checks of the labels."""

import os
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch

from fastdata.batch.batch import Augment
from fastdata.batch.source import Source
from fastdata.device.augment import RandomErasing
from fastdata.errors import MissingExtraError, OptionError
from fastdata.loaders.loader import Loader
from fastdata.plan.crop import CenterCrop, RandomResizedCrop
from fastdata.train.device import amp_dtype
from fastdata.train.recipe import Recipe

FLIP = 0.5

_NAMED = 5  # names that an error spells out

Path = str | os.PathLike[str]


def open_data(
    path: Path,
    val: Path | None,
    recipe: Recipe,
    *,
    device: torch.device,
    threads: int | None,
    closing: ExitStack,
) -> tuple[Loader, Loader | None]:
    """Open loaders of training and validation data; batches come in the forward pass's type.

    Args:
        path: Training data; random crops and flips, then the recipe's augmentation.
        val: Validation data; centre crops of images scaled to 256/224 of the size.
        recipe: Sizes, seed, precision and augmentation.
        device: Where batches go.
        threads: Decoding threads of each loader.
        closing: Closes both.

    Raises:
        OptionError: Labels are missing or wrong, or the two data sets have different classes.
        NotADatasetError: There is no data set at one of the paths.
        CorruptError: One of them is damaged.
        MissingExtraError: MixUp or CutMix is on, and torchvision is not installed.
    """
    dtype = amp_dtype(recipe.amp, device) or torch.float32
    size = recipe.size
    load = partial(Loader, device=device, dtype=dtype, threads=threads)
    augment = Augmentation(recipe)
    crop = RandomResizedCrop(size, flip=FLIP)
    data = closing.enter_context(
        load(path, recipe.batch_size, crop=crop, seed=recipe.seed, augment=augment)
    )
    check_labelled(data.source)
    # The classes are known only now, and the loader needed its augmentation before.
    augment.prepare(len(data.source.classes))
    if val is None:
        return data, None
    whole = CenterCrop(size, resize=round(size * 256 / 224))
    held_out = closing.enter_context(
        # drop_last would leave samples out of the accuracy; padding is marked invalid instead
        load(val, recipe.batch_size, crop=whole, shuffle=False, drop_last=False)
    )
    _check_same_classes(data.source, held_out.source)
    _check_labels(held_out.source)
    return data, held_out


class Augmentation:
    """Random erasing by image, then MixUp or CutMix by batch, as far as the recipe has them."""

    def __init__(self, recipe: Recipe) -> None:
        """Take the switches; call :meth:`prepare` before the first batch.

        Raises:
            MissingExtraError: MixUp or CutMix is on, and torchvision is not installed.
        """
        self._steps: list[Augment] = [RandomErasing(recipe.erasing)] if recipe.erasing else []
        self._alphas = {"MixUp": recipe.mixup, "CutMix": recipe.cutmix}
        self._v2 = _transforms() if any(self._alphas.values()) else None

    def prepare(self, classes: int) -> None:
        """Set the number of classes: mixed labels are (N, classes) shares."""
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
        """Augment (N, 3, H, W) images and (N,) labels with torch's own random numbers."""
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


def check_labelled(source: Source) -> None:
    """Check that the data set has classes, and that every sample is of one of them.

    Raises:
        OptionError: It has none, or a sample has no label or an unknown one.
    """
    if not source.classes:
        raise OptionError(
            f"{source.path} has no labels to train on; training needs one folder for each class"
        )
    _check_labels(source)


def _check_labels(source: Source) -> None:
    labels, classes = source.labels(), len(source.classes)
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        (key,) = source.keys(wrong[:1])
        label = int(labels[wrong[0]])
        what = "no label" if label < 0 else f"label {label}, the data set has {classes} classes"
        raise OptionError(
            f"{source.path}: sample {key!r} has {what}; pack again without such samples "
            f"({len(wrong)} of {len(labels)})"
        )


def _check_same_classes(data: Source, held_out: Source) -> None:
    if data.classes == held_out.classes:
        return
    missing = _named("missing", set(data.classes) - set(held_out.classes))
    unknown = _named("unknown", set(held_out.classes) - set(data.classes))
    difference = "; ".join(filter(None, (missing, unknown))) or "the same names in another order"
    raise OptionError(f"{held_out.path} has other classes than {data.path}: {difference}")


def _named(what: str, names: set[str]) -> str:
    """Such as ``missing: 'a', 'b'``, with at most five names; empty without names."""
    if not names:
        return ""
    shown = ", ".join(repr(name) for name in sorted(names)[:_NAMED])
    return f"{what}: {shown}" + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
