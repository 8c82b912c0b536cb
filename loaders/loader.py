"""Batches for training: the fast way through a data set."""

import os
from collections.abc import Collection
from typing import Literal

import torch

from fastdata.batch.batch import Augment
from fastdata.batch.workers import Transform
from fastdata.device.normalize import IMAGENET, Normalization
from fastdata.device.transfer import usable_device
from fastdata.images.limits import MAX_PIXELS
from fastdata.loaders.batch_loader import BatchLoader
from fastdata.loaders.checks import check_options
from fastdata.loaders.choice import Weights, Where
from fastdata.loaders.drawing import drawn_from
from fastdata.loaders.quarantine import Quarantine
from fastdata.loaders.ranks import rank_and_world_size
from fastdata.loaders.readers.mix import Mix
from fastdata.loaders.wiring import wired
from fastdata.plan.batch_plan import BatchPlan
from fastdata.plan.crop import CenterCrop, Crop
from fastdata.plan.epochs import Shuffle
from fastdata.system import resources


class Loader(BatchLoader):
    """Batches of decoded, cropped and, on a device, normalised images.

        loader = fd.Loader("train/", 256, crop=fd.RandomResizedCrop(224), flip=0.5, device="cuda")
        for epoch in range(90):
            for images, labels in loader: ...

    Which samples make up a batch, in which order, with which crops and flips, depends on the data
    set, ``seed`` and the epoch alone. Each full pass, one whose last batch was handed out, moves on
    to the next epoch; ``break`` ends a pass, and the next one starts the same epoch anew. One pass
    is under way at a time: starting another ends the one before it.

    Under torch.distributed each rank gets its even share of every global batch of ``batch_size``
    times world size samples, equally many batches of equal size, always. Without ``drop_last`` the
    last global batch is filled up where the ranks cannot share it evenly, and the places that fill
    it have ``batch.valid`` False: counting only valid ones counts each sample exactly once.

    :meth:`state_dict` says where the loader stands, as small JSON: what was handed out, not what
    was read ahead. A loader of another process, with another world size, batch size or number of
    threads, goes on from it with the same samples and pixels in the same order.

    Threads read and decode the next batches while the current one is used, also across the end of
    an epoch. A batch is never overwritten while a tensor or array of it is alive.

    Attributes:
        source: The data set; ``source.classes`` are the names of the labels.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Mix,
        batch_size: int,
        *,
        crop: Crop | None = None,
        flip: float = 0.0,
        views: int = 1,
        shuffle: Shuffle = True,
        seed: int = 0,
        where: Where | None = None,
        weights: Weights | None = None,
        draws: int | None = None,
        repeats: int = 1,
        drop_last: bool | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        on_error: Literal["raise", "replace"] = "raise",
        error_budget: float = 0.001,
        quarantine: str | os.PathLike[str] | None = None,
        device: str | torch.device | None = None,
        normalize: Normalization | None = IMAGENET,
        dtype: torch.dtype = torch.float32,
        augment: Augment | None = None,
        fields: Collection[str] = (),
        mask: str | None = None,
        transform: Transform | None = None,
        workers: int = 0,
        threads: int | None = None,
        prefetch: int = 2,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Open the data set; nothing is read before the first batch is asked for.

        Args:
            path: Folder of tar shards, ``.lmdb`` file, folder of images, or a :class:`Mix`.
            batch_size: Samples in a batch of this rank.
            crop: ``RandomResizedCrop`` for training; None means ``CenterCrop(224, resize=256)``.
            flip: Probability of a horizontal flip.
            views: Crops of each sample, for contrastive learning; see :class:`Batch`.
            shuffle: A new order in each epoch: True mixes all samples, ``"window"`` reads nearly
                sequentially and mixes within windows; False keeps the order of the data set.
            seed: Keys order, crops and flips.
            where: Only these samples: a function of the catalog's rows, booleans, or ids; see
                :func:`fastdata.loaders.choice.chosen_ids`.
            weights: Draw with replacement, by these weights: one for each chosen sample, or for
                each class by its name.
            draws: Samples in an epoch; None means as many as were chosen. Without weights, whole
                rounds through all of them and a random rest.
            repeats: Times that each sample comes in a row, each augmented differently.
            drop_last: Leave out an incomplete last global batch; None means when shuffling.
            rank: This rank; None takes it from torch.distributed where that is initialised.
            world_size: Number of ranks; None likewise.
            on_error: By default a bad sample is an error; ``"replace"`` puts another one in its
                place, and writes it down.
            error_budget: Share of samples that may be replaced before that is an error.
            quarantine: File that a line of JSON for each replaced sample is appended to; of
                several ranks each adds its number to the name. None is ``quarantine.jsonl`` in the
                working directory; where that cannot be written, a warning says so and
                :attr:`quarantined` alone lists them.
            device: Where batches go, normalised. None leaves them in host memory as uint8.
            normalize: Mean and standard deviation; None leaves uint8 pixels also on a device.
            dtype: Floating-point type of normalised images.
            augment: ``augment(images, labels) -> (images, labels)``, called for each batch on the
                device, in the thread and stream of ``next()``: over normalised floats, or over
                uint8 without ``normalize`` or ``device``. Labels may come back as (N, classes)
                shares; ``torchvision.transforms.v2.MixUp`` and ``CutMix`` fit as they are.
            fields: Fields of the samples to hand out as bytes, by extension; see ``batch.fields``.
            mask: Field that holds a segmentation mask as an image of one channel; see
                ``batch.masks``.
            transform: ``transform(image, seed)`` from (h, w, 3) uint8 to the same shape, over each
                cropped image on the host; ``seed`` is of (seed, epoch, sample, view). An array that
                it changes in place and returns is not copied.
            workers: Processes to run ``transform`` in; 0 runs it on ``threads`` threads. In
                processes the generators of random, numpy and torch are seeded before each call.
            threads: Decoding threads; None leaves one or two cores to the trainer.
            prefetch: Batches begun ahead of the one in use.
            max_pixels: Largest image to decode; a larger one is a bad sample. See
                :data:`fastdata.images.limits.MAX_PIXELS`.

        Raises:
            NotADatasetError: ``path`` holds no data set.
            CorruptError: It is damaged.
            OptionError: An argument is out of range, the device is not there, ``quarantine`` cannot
                be written, or there is no memory for the batches.
            ThreadError: The system allows no thread, or no further process.
        """
        check_options(
            flip=flip,
            views=views,
            on_error=on_error,
            dtype=dtype,
            transform=transform,
            workers=workers,
            threads=threads,
            prefetch=prefetch,
            max_pixels=max_pixels,
        )
        source, epochs = drawn_from(
            path,
            where=where,
            weights=weights,
            draws=draws,
            repeats=repeats,
            shuffle=shuffle,
            seed=seed,
        )
        crop = CenterCrop(224, resize=256) if crop is None else crop
        whole = bool(shuffle) if drop_last is None else drop_last
        ranks = rank_and_world_size(rank, world_size)
        pipeline = wired(
            source,
            epochs,
            crop,
            flip=flip,
            seed=seed,
            views=views,
            most=min(batch_size, len(epochs)),
            device=usable_device("cpu" if device is None else device),
            normalize=None if device is None else normalize,
            dtype=dtype,
            fields=fields,
            mask=mask,
            transform=transform,
            workers=workers,
            threads=threads or resources.decode_threads(),
            prefetch=prefetch,
            error_budget=error_budget,
            quarantine=Quarantine(quarantine, rank=ranks[0], world_size=ranks[1])
            if on_error == "replace"
            else None,
            max_pixels=max_pixels,
        )
        super().__init__(
            source,
            epochs,
            BatchPlan(len(epochs), batch_size, whole, *ranks),
            pipeline,
            own_rank=rank is None,
            crop=crop,
            flip=flip,
            views=views,
            augment=augment,
            release=pipeline.discard,
        )
