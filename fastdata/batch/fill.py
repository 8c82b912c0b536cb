"""Batches of pixels from a source, read, decoded and cropped straight into their buffer.

The native core's threads do JPEG; other formats, and everything where the core is missing, are
decoded on Python threads. What a catalog says of a sample's format only chooses the threads: both
go by the bytes, and an image of another size than the catalog says is an error. A batch is planned
where it is submitted, and no Python thread waits for the core's: handing the interpreter's lock to
and fro costs the trainer more than the planning itself. A failure travels as a value to whoever
waits for the batch, with the key of its sample.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastdata import native
from fastdata.batch.decode import decode_crop
from fastdata.batch.native import Failures, NativeDecoder, NativeJob, Places
from fastdata.batch.source import Ids, Source
from fastdata.dataset.catalog.format import FORMAT_MASK
from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS
from fastdata.images.probe import FORMATS, probe
from fastdata.plan.crop import Crop, CropPlan
from fastdata.system.threads import Flag, Task, Threads, ended

Pixels = npt.NDArray[np.uint8]

_JPEG = FORMATS.index("jpeg")

ALL = -1
"""The place of a failure that is the whole batch's."""


class Work(NamedTuple):
    """What belongs into a batch.

    Attributes:
        epoch: Epoch, which keys the crops.
        ids: (N,) int64 samples.
        keys: (N,) int64 of their crops; see :func:`fastdata.plan.epochs.augmentation_keys`.
    """

    epoch: int
    ids: Ids
    keys: npt.NDArray[np.int64]

    def at(self, place: int) -> "Work":
        """One sample of it."""
        one = slice(place, place + 1)
        return Work(self.epoch, self.ids[one], self.keys[one])


class Part(Protocol):
    """What does some of a batch's work."""

    def cancel(self) -> None:
        """Start no further sample."""

    def wait(self, seconds: float) -> bool:
        """Wait until nothing touches the batch any more; False if that takes longer."""

    def failures(self) -> Failures:
        """What went wrong, once :meth:`wait` was true."""


class Filling:
    """A batch on its way.

    Attributes:
        labels: (N,) int64 labels of its samples.
        cancelled: Set once the batch is of no use any more.
    """

    def __init__(self, labels: npt.NDArray[np.int64]) -> None:
        """Use :meth:`Filler.submit`."""
        self.labels = labels
        self._parts: list[Part] = []
        # no part of it refers back to the batch: an error would keep both alive
        self.cancelled = Flag()

    def add(self, part: Part) -> None:
        """Make a part belong to the batch, also when the batch was cancelled in the meantime."""
        self._parts.append(part)
        if self.cancelled.is_set():
            part.cancel()

    def cancel(self) -> None:
        """Start no further sample; the batch is then of no use."""
        self.cancelled.set()
        for part in self._parts:
            part.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait until nothing touches the buffer any more; False if that takes longer."""
        end = time.monotonic() + seconds
        return all(part.wait(max(0.0, end - time.monotonic())) for part in self._parts)

    def failures(self) -> Failures:
        """What went wrong, once :meth:`wait` was true; empty if nothing did."""
        failures: Failures = {}
        for part in self._parts:
            failures |= part.failures()
        return failures


class Fills(Protocol):
    """What a loader needs of its decoder."""

    def submit(self, work: Work, out: Pixels) -> Filling:
        """Begin to fill a batch; see :meth:`Filler.submit`."""

    def close(self) -> None:
        """End the threads; samples under way are finished first."""


class Filler:
    """Fills batches from one source, in the order of submission."""

    def __init__(
        self,
        source: Source,
        crop: Crop,
        *,
        flip: float,
        seed: int,
        threads: int,
        ahead: int,
        keep_going: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Prepare; Python's threads start when they are first needed.

        Args:
            source: Where samples are read.
            crop: What is cut out of them.
            flip: Probability of a horizontal flip.
            seed: Keys the crops.
            threads: Decoding threads.
            ahead: Most batches under way at a time.
            keep_going: Fill the rest of a batch after a sample that failed, so that
                :meth:`Filling.failures` names them all.
            max_pixels: Refuse larger images.
        """
        self._source = source
        self._crop = crop
        self._flip = flip
        self._seed = seed
        self._keep_going = keep_going
        core = native.load()
        self._max_pixels = max_pixels
        self._native = (
            None if core is None else NativeDecoder(core, source, threads, max_pixels=max_pixels)
        )
        self._batches = Threads(ahead, "fastdata-batch")
        self._samples = Threads(threads, "fastdata-decode")

    def submit(self, work: Work, out: Pixels) -> Filling:
        """Begin to fill a batch; returns at once.

        Args:
            work: What belongs into it.
            out: (N, h, w, 3) uint8, C-contiguous, not touched by anybody else until the end.
        """
        ids = work.ids
        rows = self._source.rows(ids)
        sizes = np.stack([rows["width"], rows["height"]], axis=1).astype(np.int64)  # (N, 2)
        filling = Filling(rows["label"].astype(np.int64))
        places = np.arange(len(ids))
        if self._native is None:
            plan = self._plan(sizes, work) if sizes.all() else None
            self._decode_here(filling, work, places, plan, out)
        elif sizes.all():
            jpeg = (rows["flags"] & FORMAT_MASK) == _JPEG
            encoded = self._native.encoded(ids, rows)
            crcs = np.ascontiguousarray(rows["crc"]) if self._source.has_checksums else _NONE
            plan = self._plan(sizes, work)
            job = self._native.fill(
                encoded, ids, crcs, places[jpeg], plan, out, keep_going=self._keep_going
            )
            filling.add(job)
            self._decode_here(filling, work, places[~jpeg], plan, out)
        else:  # a folder's sizes are only known from the files themselves
            encoded = self._native.encoded(ids, rows)
            loading = self._native.load(encoded, ids, keep_going=self._keep_going)
            filling.add(loading)
            planned = self._batches.submit(self._fill_loaded, filling, loading, work, out)
            filling.add(_Futures({ALL: planned}))
        return filling

    def close(self) -> None:
        """End the threads; samples under way are finished first."""
        self._batches.shutdown(wait=True, cancel_futures=True)
        self._samples.shutdown(wait=True, cancel_futures=True)
        self._native = None

    def _fill_loaded(self, filling: Filling, loading: NativeJob, work: Work, out: Pixels) -> None:
        """Plan the crops of a folder's images once they are in memory, and begin to decode them."""
        while not loading.wait(_SECONDS):
            pass
        failed = list(loading.failures())
        if self._native is None or (failed and not self._keep_going):  # None: closed meanwhile
            return
        sizes = np.array(loading.sizes(), np.int64)  # (N, 2), zeros for what is no JPEG
        jpeg = np.flatnonzero(sizes[:, 0] > 0)
        others = np.setdiff1d(np.flatnonzero(sizes[:, 0] == 0), failed)
        plan = self._plan(np.maximum(sizes, 1), work)
        job = self._native.fill(
            loading.samples(), work.ids, _NONE, jpeg, plan, out, keep_going=self._keep_going
        )
        filling.add(job)
        self._decode_here(filling, work, others, None, out)

    def _decode_here(
        self,
        filling: Filling,
        work: Work,
        places: Places,
        plan: CropPlan | None,
        out: Pixels,
    ) -> None:
        """Begin to decode the given places on Python's threads; without a plan, each by itself."""
        futures = {
            place: self._samples.submit(
                self._decode_sample, work, plan, place, out[place], filling.cancelled.is_set
            )
            for place in places.tolist()
        }
        if futures:
            filling.add(_Futures(futures))

    def _decode_sample(
        self,
        work: Work,
        plan: CropPlan | None,
        place: int,
        out: Pixels,
        stopped: Callable[[], bool],
    ) -> None:
        one = work.at(place)
        data = self._source.read(int(one.ids[0]))
        try:
            if plan is None:
                info = probe(data, self._max_pixels)
                plan, place = self._plan(np.array([[info.width, info.height]]), one), 0
            decode_crop(data, plan, place, out, max_pixels=self._max_pixels, stopped=stopped)
        except DecodeError as error:
            (key,) = self._source.keys(one.ids)
            raise DecodeError(f"{self._source.path}: sample {key!r}: {error}") from error

    def _plan(self, sizes: npt.NDArray[np.int64], work: Work) -> CropPlan:
        return self._crop.plan(sizes, work.keys, seed=self._seed, epoch=work.epoch, flip=self._flip)


class _Futures:
    """Work on Python's threads, by place in the batch."""

    def __init__(self, futures: dict[int, Task[None]]) -> None:
        self._futures = futures

    def cancel(self) -> None:
        for future in self._futures.values():
            future.cancel()

    def wait(self, seconds: float) -> bool:
        return ended(self._futures.values(), seconds)

    def failures(self) -> Failures:
        errors = {place: future.exception() for place, future in self._futures.items()}
        return {place: error for place, error in errors.items() if error is not None}


_NONE = np.empty(0, np.uint32)
_SECONDS = 60.0  # between looks at a job, whose end wakes the waiter by itself
