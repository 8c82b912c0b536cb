"""Batches for training: the fast way through a data set."""

import os
import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from fastdata import cores, order
from fastdata.batch import Batch
from fastdata.batches import BatchPlan
from fastdata.crop import CenterCrop, Crop
from fastdata.errors import OptionError, StalledError
from fastdata.fill import Filler, Filling
from fastdata.loaders.open_source import open_source
from fastdata.normalize import IMAGENET, Normalization, Normalize
from fastdata.slots import Ring
from fastdata.source import Ids
from fastdata.transfer import InFlight, Transfer, usable_device

_DEADLINE = 600.0  # seconds; far beyond any decode, so that only hanging storage meets it
_LOOK = 0.2  # seconds between two looks at pending signals: Ctrl-C must end a wait


@dataclass
class _Pending:
    """A batch that was begun ahead of time."""

    epoch: int
    number: int
    ids: Ids
    lease: npt.NDArray[np.uint8]  # (N, H, W, 3)
    valid: npt.NDArray[np.bool_]  # (N,)
    fill: Filling
    arriving: InFlight | None = None


class Loader:
    """Batches of decoded, cropped and, on a device, normalised images.

        loader = fd.Loader("train/", 256, crop=fd.RandomResizedCrop(224), flip=0.5, device="cuda")
        for epoch in range(90):
            for images, labels in loader: ...

    Which samples make up a batch, in which order, with which crops and flips, depends on the data
    set, ``seed`` and the epoch alone. Each full pass, one whose last batch was handed out, moves on
    to the next epoch; ``break`` ends a pass, and the next one starts the same epoch anew. One pass
    is under way at a time: starting another ends the one before it.

    Threads read and decode the next batches while the current one is used, also across the end of
    an epoch. A batch is never overwritten while a tensor or array of it is alive.

    Attributes:
        source: The data set; ``source.classes`` are the names of the labels.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        batch_size: int,
        *,
        crop: Crop | None = None,
        flip: float = 0.0,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool | None = None,
        device: str | torch.device | None = None,
        normalize: Normalization | None = IMAGENET,
        dtype: torch.dtype = torch.float32,
        threads: int | None = None,
        prefetch: int = 2,
    ) -> None:
        """Open the data set; nothing is read before the first batch is asked for.

        Args:
            path: Folder of tar shards, ``.lmdb`` file, or folder of images.
            batch_size: Samples in a batch.
            crop: ``RandomResizedCrop`` for training; None means ``CenterCrop(224, resize=256)``.
            flip: Probability of a horizontal flip.
            shuffle: A new order in each epoch; without it, the order of the data set.
            seed: Keys order, crops and flips.
            drop_last: Leave out an incomplete last batch; None means when shuffling.
            device: Where batches go, normalised. None leaves them in host memory as uint8.
            normalize: Mean and standard deviation; None leaves uint8 pixels also on a device.
            dtype: Floating-point type of normalised images.
            threads: Decoding threads; None leaves one or two cores to the trainer.
            prefetch: Batches begun ahead of the one in use.

        Raises:
            NotADatasetError: ``path`` holds no data set.
            CorruptError: It is damaged.
            OptionError: An argument is out of range.
        """
        _check(flip=flip, threads=threads, prefetch=prefetch, dtype=dtype)
        self.source = open_source(path)
        self._crop = crop if crop is not None else CenterCrop(224, resize=256)
        self._shuffle = shuffle
        self._seed = seed
        self._prefetch = prefetch
        self._plan = BatchPlan(
            len(self.source), batch_size, shuffle if drop_last is None else drop_last
        )
        self._device = None if device is None else usable_device(device)
        self._normalize: Normalize | None = None
        if self._device is not None and normalize is not None:
            self._normalize = Normalize(normalize, dtype=dtype, device=self._device)
        self._ring = Ring(
            (min(batch_size, len(self.source)), *self._crop.shape, 3),
            spare=prefetch + 2,
            pinned=self._device is not None and self._device.type == "cuda",
        )
        self._transfer = Transfer(self._device or torch.device("cpu"))
        self._filler = Filler(
            self.source,
            self._crop,
            flip=flip,
            seed=seed,
            threads=cores.decode_threads() if threads is None else threads,
            ahead=prefetch + 1,
        )
        self._pending: deque[_Pending] = deque()
        self._epoch = 0
        self._pass = 0
        self._closed = False
        self._process = os.getpid()
        weakref.finalize(self, _cancel, self._pending)  # so that its threads end with the loader

    def __len__(self) -> int:
        """Batches in a pass."""
        return len(self._plan)

    @property
    def epoch(self) -> int:
        """Epoch of the pass that begins next."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the pass that begins next."""
        if epoch < 0:
            raise OptionError(f"epoch must be 0 or more, found {epoch}")
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        """Begin a pass; it ends the one before it."""
        if self._closed:
            raise OptionError("this loader was closed; make a new one")
        if self._process != os.getpid():
            raise OptionError("a loader's threads do not survive a fork; make it in the child")
        self._pass += 1
        return self._iterate(self._pass, self._epoch)

    def close(self) -> None:
        """End the threads and release the files. Batches that were handed out stay valid."""
        self._closed = True
        self._pass += 1
        self._discard()
        self._filler.close()
        self._transfer.close()
        self.source.close()

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

    def _iterate(self, number: int, epoch: int) -> Iterator[Batch]:
        """The batches of pass ``number``."""
        full = False
        try:
            for index in range(len(self)):
                if number != self._pass:
                    raise RuntimeError("this pass ended: another was begun, or the loader closed")
                batch = self._receive(epoch, index)
                full = index == len(self) - 1
                yield batch
        finally:
            if number == self._pass:
                if full and self._epoch == epoch:
                    self._epoch += 1
                elif not full:
                    self._discard()

    def _receive(self, epoch: int, index: int) -> Batch:
        """Wait for a batch, and begin those after it."""
        first = self._pending[0] if self._pending else None
        if first is None or (first.epoch, first.number) != (epoch, index):
            self._discard()
            self._begin(epoch, index)
        while len(self._pending) <= self._prefetch:
            self._begin(*self._after(self._pending[-1].epoch, self._pending[-1].number))
        batch = self._pending[0]
        self._wait(batch.fill)
        failures = batch.fill.failures()
        if failures:  # of several the first, which does not depend on timing
            self._discard()
            raise failures[min(failures)]
        arrived = self._transfer.receive(self._send(batch))
        self._pending.popleft()
        for ahead in self._pending:  # what is ready is copied while this batch is used
            if not ahead.fill.wait(0) or ahead.fill.failures():
                break
            self._send(ahead)
        images = self._normalize(arrived.images) if self._normalize else arrived.images
        return Batch(images, arrived.labels, batch.ids, arrived.valid, self.source.keys)

    def _wait(self, fill: Filling) -> None:
        """Wait for a batch, but not for ever."""
        end = time.monotonic() + _DEADLINE
        while not fill.wait(_LOOK):
            if time.monotonic() > end:
                raise StalledError(
                    f"{self.source.path}: no batch for {_DEADLINE:.0f} s; does the storage answer?"
                )

    def _send(self, batch: _Pending) -> InFlight:
        """Begin to copy a filled batch to the device, if that was not done before."""
        if batch.arriving is None:
            batch.arriving = self._transfer.start(batch.lease, batch.fill.labels, batch.valid)
        return batch.arriving

    def _begin(self, epoch: int, index: int) -> None:
        """Begin to fill a batch."""
        ids, valid = self._plan.positions(index)
        if self._shuffle:
            key = order.epoch_key(self.source.fingerprint, self._seed, epoch)
            ids = order.permutation(ids, len(self.source), key)
        lease = self._ring.lend()[: len(ids)]  # (N, H, W, 3) uint8
        fill = self._filler.submit(epoch, ids, lease)
        self._pending.append(_Pending(epoch, index, ids, lease, valid, fill))

    def _after(self, epoch: int, index: int) -> tuple[int, int]:
        """The batch that follows, in the next epoch after the last one."""
        return (epoch, index + 1) if index + 1 < len(self) else (epoch + 1, 0)

    def _discard(self) -> None:
        """Drop what was begun ahead of time."""
        _cancel(self._pending)
        self._pending.clear()


def _cancel(pending: deque[_Pending]) -> None:
    """Let the threads skip what is left of these batches."""
    for batch in pending:
        batch.fill.cancel()


def _check(*, flip: float, threads: int | None, prefetch: int, dtype: torch.dtype) -> None:
    """Arguments of a loader that nothing else checks."""
    if not 0 <= flip <= 1:
        raise OptionError(f"flip is a probability from 0 to 1, found {flip}")
    if threads is not None and threads < 1:
        raise OptionError(f"threads must be 1 or more, found {threads}")
    if prefetch < 0:
        raise OptionError(f"prefetch must be 0 or more, found {prefetch}")
    if not dtype.is_floating_point:
        raise OptionError(f"dtype must be a floating-point type, found {dtype}")
