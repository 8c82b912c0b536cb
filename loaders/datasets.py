"""Samples for people who keep their own transforms: torch's IterableDataset over any data set.

The fast way to train is :class:`fastdata.Loader`; these are for ``torch.utils.data.DataLoader``.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from fastdata.batch.decode import decode
from fastdata.batch.source import Sample
from fastdata.errors import DecodeError, OptionError
from fastdata.images.limits import MAX_PIXELS, MOST_PIXELS
from fastdata.loaders import state
from fastdata.loaders.options import Ranks
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.packed import (
    AnySource,
    LMDBSource,
    TarSource,
    open_source,
    source_class,
)
from fastdata.plan import rng
from fastdata.system.threads import check_count

_AHEAD = 64  # samples whose order and catalog rows are looked up together


class SampleDataset(IterableDataset[Any]):
    """Samples of one data set, one by one or in batches.

    An epoch is sharded across ranks and DataLoader workers: each sample comes exactly once.

        rank r of W           takes positions r, r + W, r + 2 W, ... of the epoch's order
        worker k of K         takes every K-th sample of its rank, or every K-th batch

    With ``batch_size`` the dataset itself batches and workers take whole batches in turn, so that
    ``DataLoader(dataset, batch_size=None, num_workers=K)`` yields the same batches in the same
    order for any K. If DataLoader batches instead, each worker ends with a short batch of its own,
    and ``len`` of the DataLoader, which assumes one short batch in all, is too low.

    ``torchdata``'s StatefulDataLoader saves and restores it by :meth:`state_dict`, with the same
    number of workers.

    Attributes:
        source: The data set itself: ``source.classes``, ``source.labels()``, random access.
    """

    _open: Callable[[str | os.PathLike[str]], AnySource] = staticmethod(open_source)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        decode: bool = True,
        transform: Callable[[Sample], Any] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        batch_size: int | None = None,
        ranks: Ranks | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Open a data set; no sample is read yet.

        Args:
            path: Folder of tar shards, ``.lmdb`` file, or folder of images.
            decode: Decode images to RGB arrays (H, W, 3), uint8; otherwise they stay bytes.
            transform: Applied to each :class:`Sample`; what it returns is yielded instead.
            shuffle: The epoch's permutation; otherwise the order of the data set.
            seed: Keys the order.
            batch_size: Yield lists of this many samples, the last one shorter.
            ranks: This rank and the world size; None takes torch.distributed's.
            max_pixels: Largest image to decode; a larger one is a DecodeError.

        Raises:
            NotADatasetError: ``path`` holds no data set of this kind.
            CorruptError: It is damaged.
            OptionError: An argument is out of range.
        """
        if batch_size is not None and batch_size < 1:
            raise OptionError(f"batch_size must be 1 or more, found {batch_size}")
        check_count("max_pixels", max_pixels, MOST_PIXELS)
        self.source = self._open(path)
        self._decode = decode
        self._max_pixels = max_pixels
        self._transform = transform
        self._shuffle = shuffle
        self._seed = seed
        self._batch_size = batch_size
        self._ranks = ranks
        self._done = 0  # samples, or batches, that this process has yielded in the pass
        self._resumed = False
        # in shared memory, so that workers that live for many epochs see it change
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the passes that begin from now on, in all workers."""
        if epoch < 0:
            raise OptionError(f"epoch must be 0 or more, found {epoch}")
        self._epoch.fill_(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass of this process, the main one or a worker, stands: small JSON."""
        return state.compose(self._content(), int(self._epoch), self._done)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next pass resume where a state was taken, in a worker of the same number.

        Raises:
            StateError: It belongs to another data set, other options, or another number of workers.
        """
        epoch, self._done = state.position(state_dict, self._content(), ())
        self.set_epoch(epoch)
        self._resumed = True

    def __len__(self) -> int:
        """Samples of this rank, or its batches where ``batch_size`` is given."""
        samples = len(self._positions())
        return samples if self._batch_size is None else -(-samples // self._batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass over the part of this rank and worker."""
        _refuse_accelerate(self, self._current_ranks().world_size)
        worker, workers = _worker()
        epoch = int(self._epoch)
        self._done, self._resumed = (self._done if self._resumed else 0), False
        if self._batch_size is None:
            # DataLoader takes samples from its workers in turn: together they keep the order
            mine = self._positions()[worker::workers]
            for start in range(self._done, len(mine), _AHEAD):
                for sample in self._samples(mine[start : start + _AHEAD], epoch):
                    self._done += 1
                    yield sample
        else:
            positions, step = self._positions(), self._batch_size
            first = (worker + self._done * workers) * step
            for start in range(first, len(positions), workers * step):
                batch = list(self._samples(positions[start : start + step], epoch))
                self._done += 1
                yield batch

    def __getstate__(self) -> dict[str, Any]:
        """Take the rank along to a spawned worker, where torch.distributed is not initialised."""
        ranks = self._current_ranks()
        _refuse_accelerate(self, ranks.world_size)
        return {**self.__dict__, "_ranks": ranks}

    def _content(self) -> dict[str, object]:
        """What decides which samples this process yields."""
        ranks = self._current_ranks()
        worker, workers = _worker()
        return {
            "fingerprint": self.source.fingerprint,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "batch_size": self._batch_size,
            "rank": ranks.rank,
            "world_size": ranks.world_size,
            "worker": worker,
            "workers": workers,
        }

    def _positions(self) -> range:
        """Positions of this rank in the epoch's order."""
        ranks = self._current_ranks()
        return range(ranks.rank, len(self.source), ranks.world_size)

    def _samples(self, positions: range, epoch: int) -> Iterator[Any]:
        ids = np.array(positions, np.int64)
        # for many samples at once: the arrays of one cost as much as those of 64
        if self._shuffle:
            key = rng.epoch_key(self.source.fingerprint, self._seed, epoch)
            ids = rng.permutation(ids, len(self.source), key)
        labels = self.source.rows(ids)["label"].tolist()
        for parts in zip(ids.tolist(), self.source.keys(ids), labels, strict=True):
            yield self._sample(*parts)

    def _sample(self, number: int, key: str, label: int) -> Any:
        image: Any = self.source.read(number)
        if self._decode:
            try:
                image = decode(image, max_pixels=self._max_pixels)
            except DecodeError as error:
                raise DecodeError(f"{self.source.path}: sample {key!r}: {error}") from error
        sample = Sample(key, label, image, self.source.read_fields(number), number)
        return sample if self._transform is None else self._transform(sample)

    def _current_ranks(self) -> Ranks:
        return self._ranks or Ranks.current()


def _refuse_accelerate(dataset: object, world_size: int) -> None:
    """Refuse a pass whose DataLoader went through ``Accelerator.prepare``, or a trainer's own.

    A prepared DataLoader either takes the first rank's samples for all there are, or each rank's
    own; of a data set that is sharded already, most samples then never come.

    Args:
        dataset: The one that is iterated over, or sent to a worker that will be.
        world_size: Over how many ranks it is sharded.

    Raises:
        OptionError: It would be sharded twice.
    """
    state = sys.modules.get("accelerate.state")
    if world_size == 1 or state is None:
        return
    # what is being iterated over, by attributes that accelerate documents
    active = getattr(state.GradientState(), "active_dataloader", None)
    prepared = getattr(active, "dataset", None)
    if prepared is dataset or getattr(prepared, "dataset", None) is dataset:
        raise OptionError(
            "Accelerate shards this data set over ranks, and so does the data set itself: do not "
            "prepare its DataLoader, or open it with ranks=fd.Ranks(0, 1)"
        )


def _worker() -> tuple[int, int]:
    """Number of this worker of a DataLoader, and of how many; 0 of 1 in the main process."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class TarDataset(SampleDataset):
    """Samples of a folder of tar shards that fastdata packed."""

    _open = TarSource


class LMDBDataset(SampleDataset):
    """Samples of an LMDB file that fastdata packed."""

    _open = LMDBSource


class FolderDataset(SampleDataset):
    """Samples of a folder of images as it is, with class folders or without."""

    _open = FolderSource


class DatasetOptions(TypedDict, total=False):
    """The options of :class:`SampleDataset`."""

    decode: bool
    transform: Callable[[Sample], Any] | None
    shuffle: bool
    seed: int
    batch_size: int | None
    ranks: Ranks | None
    max_pixels: int


_DATASETS: dict[type[AnySource], type[SampleDataset]] = {
    TarSource: TarDataset,
    LMDBSource: LMDBDataset,
    FolderSource: FolderDataset,
}


def open_dataset(path: str | os.PathLike[str], **options: Unpack[DatasetOptions]) -> SampleDataset:
    """Open whatever data set lies at a path; ``fastdata.open`` is this function.

    Args:
        path: Folder of tar shards, ``.lmdb`` file, or folder of images.
        **options: Those of :class:`SampleDataset`.

    Raises:
        NotADatasetError: There is none.
        CorruptError: It is damaged.
        OptionError: An option is out of range.
    """
    return _DATASETS[source_class(path)](path, **options)
