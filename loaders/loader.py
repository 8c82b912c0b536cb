"""Batches for training: the fast way through a data set."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

import torch

from fastdata.batch.batch import Augment, Batch
from fastdata.batch.source import Source
from fastdata.batch.workers import Transform
from fastdata.device.normalize import IMAGENET, Normalization
from fastdata.images.limits import MAX_PIXELS
from fastdata.loaders.options import Options, Ranks, Replace, Sampling
from fastdata.loaders.passes import Passes
from fastdata.loaders.pipeline import Pipeline, build_pipeline
from fastdata.loaders.readers.mix import Mix, MixedSource
from fastdata.loaders.readers.packed import open_source
from fastdata.plan.crop import VALIDATION, Crop
from fastdata.plan.epochs import BatchPlan, Epochs, Shuffle, Stratum

Path = str | os.PathLike[str] | Mix
Build = Callable[[Source, Epochs, BatchPlan, Options], Pipeline[Any]]


def open_epochs(
    path: Path, sampling: Sampling, *, shuffle: Shuffle, seed: int
) -> tuple[Source, Epochs]:
    """Open a data set, and work out what its epochs draw.

    Raises:
        NotADatasetError: ``path`` holds no data set.
        CorruptError: It is damaged.
        OptionError: An argument does not fit the data set.
    """
    source: Source = MixedSource(path) if isinstance(path, Mix) else open_source(path)
    ids = sampling.chosen_ids(source)
    strata = (
        source.strata(ids, sampling.draws)
        if isinstance(source, MixedSource)
        else (Stratum(ids, len(ids) if sampling.draws is None else sampling.draws),)
    )
    weights = sampling.sample_weights(source, ids)
    return source, Epochs(source.fingerprint, strata, shuffle, seed, sampling.repeats, weights)


class BatchLoader:
    """What loaders have in common, however their batches are filled; see :class:`Loader`.

    Attributes:
        source: The data set; ``source.classes`` are the names of the labels.
    """

    def __init__(
        self,
        path: Path,
        sampling: Sampling | None,
        ranks: Ranks | None,
        options: Options,
        build: Build,
    ) -> None:
        """Stand at the beginning of epoch 0; ``build`` makes the pipeline that fills batches."""
        source, epochs = open_epochs(
            path, sampling or Sampling(), shuffle=options.shuffle, seed=options.seed
        )
        # torch.distributed's ranks are looked up again when a pass begins
        self._found = Ranks.current() if ranks is None else None
        mine = ranks or self._found or Ranks(0, 1)
        plan = BatchPlan(
            len(epochs), options.batch_size, options.drops_last, mine.rank, mine.world_size
        )
        self.source = source
        self._pipeline = build(source, epochs, plan, options)
        self._plan = plan
        self._passes = Passes(source, epochs, plan, self._pipeline, options)
        # threads end with the last of the loader and its passes
        self._passes.when_gone(self._pipeline.release)

    def __len__(self) -> int:
        """Batches in a full pass, the same on every rank."""
        return len(self._plan)

    @property
    def epoch(self) -> int:
        """Epoch of the pass that begins next."""
        return self._passes.next[0]

    @property
    def replaced(self) -> int:
        """Bad samples that this rank has replaced so far."""
        return self._pipeline.replaced

    @property
    def quarantined(self) -> Sequence[Mapping[str, object]]:
        """Those samples, as the quarantine file lists them: key, error and substitute."""
        return self._pipeline.quarantined

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the pass that begins next."""
        self._passes.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: after the last batch that was handed out, on all ranks.

        It is the same on every rank, and small JSON. After the last batch of a pass it is the
        beginning of the next epoch.
        """
        return self._passes.state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *, override: Collection[str] = ()
    ) -> None:
        """Make the next pass resume where a state was taken; a pass under way ends.

        World size, batch size, threads and device may differ.

        Args:
            state_dict: From :meth:`state_dict`, perhaps by way of JSON.
            override: Names of fields that may differ, for example ``["crop"]``.

        Raises:
            StateError: It belongs to another data set or other options, or is no state at all.
        """
        self._passes.load_state_dict(state_dict, override)

    def __iter__(self) -> Iterator[Batch]:
        """Begin a pass; it ends the one before it.

        Raises:
            OptionError: The loader was closed, or this is a forked child of the process that made
                it.
        """
        self._passes.require_open()
        if self._found is not None:
            self._found.check_current()
        return self._passes.begin()

    def __getitem__(self, number: object) -> NoReturn:
        """Refuse a DataLoader around the loader, which would ask for single samples."""
        raise TypeError("iterate over a loader itself, not a DataLoader of it; see fastdata.open")

    def close(self) -> None:
        """End the threads and release the files. Batches that were handed out stay valid.

        Any thread may call it: where another one waits in ``next()``, that raises ``OptionError``.
        In a forked child nothing happens, as the threads are not the child's.
        """
        if self._passes.is_here():
            self._passes.close()
            self.source.close()

    def __reduce__(self) -> NoReturn:
        """Threads and buffers cannot be sent."""
        raise TypeError("a loader cannot be pickled; make it in the process that uses it")

    def __enter__(self) -> Self:
        """Use the loader in a with statement, which closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the loader."""
        self.close()


class Loader(BatchLoader):
    """Batches of decoded, cropped and, on a device, normalised images.

        loader = fd.Loader("train/", 256, crop=fd.RandomResizedCrop(224, flip=0.5), device="cuda")
        for epoch in range(90):
            for images, labels in loader: ...

    Which samples make up a batch, in which order, with which crops and flips, depends on the data
    set, ``seed`` and the epoch alone. A full pass, one whose last batch was handed out, moves on to
    the next epoch; after a ``break`` the next pass restarts the same epoch. One pass is under way
    at a time: starting another ends the one before it.

    Under torch.distributed each rank gets an even share of every global batch of ``batch_size``
    times world size samples: always equally many batches of equal size. Without ``drop_last`` the
    last global batch is padded if the ranks cannot share it evenly, and the padding has
    ``batch.valid`` False: counting only valid samples counts each exactly once.

    :meth:`state_dict` says where the loader stands, as small JSON: what was handed out, not what
    was read ahead. A loader in another process, with another world size, batch size or number of
    threads, resumes from it with the same samples and pixels in the same order.

    Threads read and decode the next batches while the current one is used, across the end of an
    epoch too. A batch is never overwritten while a tensor or array of it is alive.

    Attributes:
        source: The data set; ``source.classes`` are the names of the labels.
    """

    def __init__(
        self,
        path: Path,
        batch_size: int,
        *,
        crop: Crop = VALIDATION,
        views: int = 1,
        shuffle: Shuffle = True,
        seed: int = 0,
        sampling: Sampling | None = None,
        drop_last: bool | None = None,
        ranks: Ranks | None = None,
        on_error: Replace | None = None,
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
            crop: Cut out of each image: ``RandomResizedCrop`` for training.
            views: Crops of each sample, for contrastive learning; see :class:`Batch`.
            shuffle: A new order in each epoch: True mixes all samples, ``"window"`` reads nearly
                sequentially and mixes within windows; False keeps the order of the data set.
            seed: Keys order, crops and flips.
            sampling: Which samples an epoch draws, and how often; None draws every sample once.
            drop_last: Leave out an incomplete last global batch; None means when shuffling.
            ranks: This rank and the world size; None takes torch.distributed's.
            on_error: Replace bad samples; None makes a bad sample an error.
            device: Where batches go, normalised. None leaves them in host memory as uint8.
            normalize: Mean and standard deviation; None leaves uint8 pixels on a device too.
            dtype: Floating-point type of normalised images.
            augment: ``augment(images, labels) -> (images, labels)``, called for each batch on the
                device, in the thread and stream of ``next()``: over normalised floats, or over
                uint8 without ``normalize`` or ``device``. Labels may come back as (N, classes)
                shares; ``torchvision.transforms.v2.MixUp`` and ``CutMix`` fit as they are.
            fields: Fields of the samples to hand out as bytes, by extension; see ``batch.fields``.
            mask: Field that holds a segmentation mask as an image of one channel; see
                ``batch.masks``.
            transform: ``transform(image, seed)`` from (h, w, 3) uint8 to the same shape, over each
                cropped image on the host; ``seed`` depends on (seed, epoch, sample, view). An array
                that it changes in place and returns is not copied.
            workers: Processes to run ``transform`` in; 0 runs it on ``threads`` threads. In
                processes the generators of random, numpy and torch are seeded before each call.
            threads: Decoding threads; None leaves one or two cores to the trainer.
            prefetch: Batches begun ahead of the one in use.
            max_pixels: Largest image to decode; a larger one is a bad sample. See
                :data:`fastdata.images.limits.MAX_PIXELS`.

        Raises:
            NotADatasetError: ``path`` holds no data set.
            CorruptError: It is damaged.
            OptionError: An argument is out of range, the device is not there, the quarantine cannot
                be written, or there is no memory for the batches.
            ThreadError: The system allows no thread, or no further process.
        """
        options = Options(
            batch_size=batch_size,
            crop=crop,
            views=views,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            on_error=on_error,
            device=device,
            normalize=normalize,
            dtype=dtype,
            augment=augment,
            fields=fields,
            mask=mask,
            transform=transform,
            workers=workers,
            threads=threads,
            prefetch=prefetch,
            max_pixels=max_pixels,
        )
        super().__init__(path, sampling, ranks, options, build_pipeline)
