"""Training and validation data of a run."""

import os
from contextlib import ExitStack
from functools import partial

import torch

from fastdata.loaders.loader import Loader
from fastdata.plan.crop import CenterCrop, RandomResizedCrop
from fastdata.train.checks import check_labelled, check_labels, check_same_classes
from fastdata.train.mixing import Augmentation
from fastdata.train.precision import amp_dtype
from fastdata.train.recipe import Recipe

FLIP = 0.5

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
    """Loaders whose batches arrive on the device, normalised, in the type of the forward pass.

    Args:
        path: Training data; random crops and flips, and what the recipe does to whole batches.
        val: Validation data; centre crops of images scaled to 256/224 of the size.
        recipe: Says how.
        device: Where batches go.
        threads: Decoding threads of each.
        closing: Closes them.

    Raises:
        OptionError: There are no labels, or wrong ones, or the two have other classes.
        NotADatasetError: One of them is no data set.
        CorruptError: One of them is damaged.
        MissingExtraError: MixUp or CutMix is on, and torchvision is not installed.
    """
    dtype = amp_dtype(recipe.amp, device) or torch.float32
    size = recipe.size
    load = partial(Loader, device=device, dtype=dtype, threads=threads)
    augment = Augmentation(recipe)
    crop = RandomResizedCrop(size)
    data = closing.enter_context(
        load(path, recipe.batch_size, crop=crop, flip=FLIP, seed=recipe.seed, augment=augment)
    )
    check_labelled(data.source)
    augment.prepare(len(data.source.classes))
    if val is None:
        return data, None
    whole = CenterCrop(size, resize=round(size * 256 / 224))
    held_out = closing.enter_context(
        load(val, recipe.batch_size, crop=whole, shuffle=False, drop_last=False)
    )
    check_same_classes(data.source, held_out.source)
    check_labels(held_out.source)
    return data, held_out
