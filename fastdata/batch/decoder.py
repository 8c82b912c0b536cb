"""Batches of pixels from a source, read, decoded and cropped straight into their buffer.

The native core's threads decode JPEGs; other formats, and everything where the core is missing, are
decoded on Python threads. The format that a catalog states only chooses the threads: both go by the
bytes, and an image of another size than the catalog says is an error. A batch is planned where it
is submitted, and no Python thread waits for the core's: handing the interpreter's lock to and fro
costs the trainer more than the planning itself. A failure travels as a value to whoever waits for
the batch, with the key of its sample.
"""

import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastdata import native
from fastdata.batch.decode import decode_crop
from fastdata.batch.source import Ids, Source
from fastdata.dataset.catalog.format import FORMAT_MASK
from fastdata.errors import DecodeError, FastdataError, SampleError, ShardError
from fastdata.images.limits import MAX_PIXELS, JpegLimits
from fastdata.images.probe import FORMATS, probe
from fastdata.plan.crop import Crop, CropPlan
from fastdata.system import resources
from fastdata.system.threads import Flag, Task, Threads, ended, warn_of_fewer

Pixels = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Failures = dict[int, BaseException]
"""What went wrong, by place in the batch."""

ALL = -1
"""The place of a failure that is the whole batch's."""

_JPEG = FORMATS.index("jpeg")
_NO_CHECKSUMS = np.empty(0, np.uint32)
_SECONDS = 60.0  # between looks at a job, whose end wakes the waiter by itself
_ERRORS = (ShardError, SampleError, DecodeError, FastdataError)  # by the core's RowError


class Work(NamedTuple):
    """The samples of a batch.

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
    """Some of a batch's work."""

    def cancel(self) -> None:
        """Start no further sample."""

    def wait(self, seconds: float) -> bool:
        """Wait until nothing touches the batch any more; False if that takes longer."""

    def failures(self) -> Failures:
        """What went wrong, once :meth:`wait` was true."""


class PendingBatch:
    """A batch that is being decoded.

    Attributes:
        labels: (N,) int64 labels of its samples.
        cancelled: Set once nobody wants the batch any more.
    """

    def __init__(self, labels: npt.NDArray[np.int64]) -> None:
        """Use :meth:`Decoder.submit`."""
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
        """Start no further sample; the buffer then holds anything."""
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


class Decoder(Protocol):
    """Fills batches, in the order of submission."""

    def submit(self, work: Work, out: Pixels) -> PendingBatch:
        """Begin to fill a batch; returns at once.

        Args:
            work: Its samples.
            out: (N, h, w, 3) uint8, C-contiguous, not touched by anybody else until the end.
        """

    def close(self) -> None:
        """End the threads; samples under way are finished first."""


class BatchDecoder:
    """The :class:`Decoder` of one source: reads, decodes, crops, resizes and flips."""

    def __init__(
        self,
        source: Source,
        crop: Crop,
        *,
        seed: int,
        threads: int,
        ahead: int,
        keep_going: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Prepare; the core's threads start now, Python's when they are first needed.

        Args:
            source: Where samples are read.
            crop: Cut out of each image.
            seed: Keys the crops.
            threads: Decoding threads.
            ahead: Most batches under way at a time.
            keep_going: Fill the rest of a batch after a sample that failed, so that
                :meth:`PendingBatch.failures` names them all.
            max_pixels: Refuse larger images.

        Raises:
            ThreadError: The system allows no thread.
        """
        self._source = source
        self._crop = crop
        self._seed = seed
        self._keep_going = keep_going
        self._max_pixels = max_pixels
        core = native.load()
        self._native = (
            None if core is None else NativeDecoder(core, source, threads, max_pixels=max_pixels)
        )
        self._batches = Threads(ahead, "fastdata-batch")
        self._samples = Threads(threads, "fastdata-decode")

    def submit(self, work: Work, out: Pixels) -> PendingBatch:
        """Begin to fill a batch; see :meth:`Decoder.submit`."""
        ids = work.ids
        rows = self._source.rows(ids)
        sizes = np.stack([rows["width"], rows["height"]], axis=1).astype(np.int64)  # (N, 2)
        batch = PendingBatch(rows["label"].astype(np.int64))
        places = np.arange(len(ids))
        if self._native is None:
            plan = self._plan(sizes, work) if sizes.all() else None
            self._decode_here(batch, work, places, plan, out)
        elif sizes.all():
            jpeg = (rows["flags"] & FORMAT_MASK) == _JPEG
            encoded = self._native.encoded(ids, rows)
            has_crcs = self._source.has_checksums
            crcs = np.ascontiguousarray(rows["crc"]) if has_crcs else _NO_CHECKSUMS
            # all places are planned, though the job takes the JPEGs: a plan is indexed by place
            plan = self._plan(sizes, work)
            job = self._native.fill(
                encoded, ids, crcs, places[jpeg], plan, out, keep_going=self._keep_going
            )
            batch.add(job)
            self._decode_here(batch, work, places[~jpeg], plan, out)
        else:  # a folder's sizes are only known from the files themselves
            encoded = self._native.encoded(ids, rows)
            loading = self._native.load(encoded, ids, keep_going=self._keep_going)
            batch.add(loading)
            planned = self._batches.submit(self._fill_loaded, batch, loading, work, out)
            batch.add(_Tasks({ALL: planned}))
        return batch

    def close(self) -> None:
        """End the threads; samples under way are finished first."""
        self._batches.shutdown(wait=True, cancel_futures=True)
        self._samples.shutdown(wait=True, cancel_futures=True)
        self._native = None

    def _fill_loaded(
        self, batch: PendingBatch, loading: "NativeJob", work: Work, out: Pixels
    ) -> None:
        """Plan the crops of a folder's images once they are in memory, and begin to decode them."""
        while not loading.wait(_SECONDS):
            pass
        failed = list(loading.failures())
        if self._native is None or (failed and not self._keep_going):  # None: closed meanwhile
            return
        sizes = np.array(loading.sizes(), np.int64)  # (N, 2), zeros for other formats
        # other formats are probed by the thread that decodes them; a plan needs some size for each
        jpeg = np.flatnonzero(sizes[:, 0] > 0)
        others = np.setdiff1d(np.flatnonzero(sizes[:, 0] == 0), failed)
        plan = self._plan(np.maximum(sizes, 1), work)
        encoded, crcs = loading.samples(), _NO_CHECKSUMS
        job = self._native.fill(
            encoded, work.ids, crcs, jpeg, plan, out, keep_going=self._keep_going
        )
        batch.add(job)
        self._decode_here(batch, work, others, None, out)

    def _decode_here(
        self, batch: PendingBatch, work: Work, places: Places, plan: CropPlan | None, out: Pixels
    ) -> None:
        """Begin to decode the given places on Python's threads; without a plan, each by itself."""
        tasks = {
            place: self._samples.submit(
                self._decode_sample, work, plan, place, out[place], batch.cancelled.is_set
            )
            for place in places.tolist()
        }
        if tasks:
            batch.add(_Tasks(tasks))

    def _decode_sample(
        self,
        work: Work,
        plan: CropPlan | None,
        place: int,
        out: Pixels,
        stopped: Callable[[], bool],
    ) -> None:
        one = work.at(place)
        # read checks the checksum, where the core would have done so
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
        return self._crop.plan(sizes, work.keys, seed=self._seed, epoch=work.epoch)


class _Tasks:
    """A :class:`Part` on Python's threads, by place in the batch."""

    def __init__(self, tasks: dict[int, Task[None]]) -> None:
        self._tasks = tasks

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def wait(self, seconds: float) -> bool:
        return ended(self._tasks.values(), seconds)

    def failures(self) -> Failures:
        errors = {place: task.exception() for place, task in self._tasks.items()}
        return {place: error for place, error in errors.items() if error is not None}


class NativeDecoder:
    """A pool of native threads that read, check, decode, crop and resize JPEGs."""

    def __init__(
        self,
        core: ModuleType,
        source: Source,
        threads: int,
        *,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Start the threads; they end with this object. Larger images are refused.

        Raises:
            ThreadError: The system allows none.
        """
        self._source = source
        self._core = core
        self._pool = core.WorkerPool(threads, JpegLimits(max_pixels), resources.memory_share())
        if self._pool.threads < threads:
            warn_of_fewer(self._pool.threads, threads)

    def encoded(self, ids: Ids, rows: npt.NDArray[Any]) -> Any:
        """Where the encoded bytes of N samples are, for :meth:`load` and :meth:`fill`."""
        return self._source.encoded(self._core, ids, rows)

    def load(self, encoded: Any, ids: Ids, *, keep_going: bool) -> "NativeJob":
        """Begin to read samples whose sizes are unknown."""
        return NativeJob(self._pool.load(encoded, keep_going), self._source, ids)

    def fill(
        self,
        encoded: Any,
        ids: Ids,
        crcs: npt.NDArray[np.uint32],
        places: Places,
        plan: CropPlan,
        out: Pixels,
        *,
        keep_going: bool,
    ) -> "NativeJob":
        """Begin to decode the JPEGs at ``places`` of a batch.

        Args:
            encoded: From :meth:`encoded`, or the ``samples()`` of a job of :meth:`load`.
            ids: (N,) samples.
            crcs: (N,) CRC-32C of each sample, or empty without checksums.
            places: (M,) places of the batch to fill.
            plan: Crops of all N samples.
            out: (N, h, w, 3) uint8, which the job keeps alive.
            keep_going: Continue with the others after a sample that failed.
        """
        job = self._pool.fill(encoded, crcs, places, plan, out, keep_going)
        return NativeJob(job, self._source, ids[places], places)


class NativeJob:
    """A :class:`Part` on the native threads."""

    def __init__(self, job: Any, source: Source, ids: Ids, places: Places | None = None) -> None:
        """Use :class:`NativeDecoder`; row i of the job is sample ``ids[i]``."""
        self._job = job
        self._source = source
        self._ids = ids
        self._places = places

    def cancel(self) -> None:
        """Start no further sample."""
        self._job.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait until no thread touches the batch any more; False if that takes longer."""
        return bool(self._job.wait(seconds))

    def failures(self) -> Failures:
        """What went wrong, once :meth:`wait` was true."""
        failures: Failures = {}
        for row, kind, message in self._job.failures():
            (key,) = self._source.keys(self._ids[row : row + 1])
            text = f"{self._source.path}: sample {key!r}: {os.fsdecode(message)}"
            place = row if self._places is None else int(self._places[row])
            failures[place] = _ERRORS[kind](text)
        return failures

    def samples(self) -> Any:
        """What :meth:`NativeDecoder.load` read, as ``encoded`` for :meth:`NativeDecoder.fill`."""
        return self._job.samples()

    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of each JPEG that was read; zeros for other formats."""
        sizes: list[tuple[int, int]] = self._job.sizes()
        return sizes
