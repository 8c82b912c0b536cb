"""Batches of pixels from a source, read, decoded and cropped straight into their buffer.

The native core's threads do JPEG; other formats, and everything where the core is missing, go
through OpenCV on Python threads. One thread for each batch under way waits for both, and a failure
travels as a value to whoever waits for the batch, with the key of its sample.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastdata.crop import Crop, CropPlan
from fastdata.decode import decode_crop
from fastdata.errors import DecodeError
from fastdata.native import Failures, NativeDecoder, Places
from fastdata.probe import FORMATS, core, probe
from fastdata.source import Ids, Source

T = TypeVar("T")
Pixels = npt.NDArray[np.uint8]

_JPEG = FORMATS.index("jpeg")
_FORMAT = 0xFF  # bits of a row's flags


class Filling(Generic[T]):
    """A batch on its way; its result is there when nothing touches its buffer any more."""

    def __init__(self) -> None:
        """Use :meth:`Filler.submit`."""
        self.result: Future[T]
        self.cancelled = False
        self._job: Any = None

    def cancel(self) -> None:
        """Start no further sample; the result is then an error or never comes."""
        self.cancelled = True
        self.result.cancel()
        if self._job is not None:
            self._job.cancel()

    def watch(self, job: Any) -> None:
        """From now on let :meth:`cancel` reach this native job."""
        self._job = job
        if self.cancelled:
            job.cancel()


class Filler:
    """Fills batches from one source, in the order of submission."""

    def __init__(
        self, source: Source, crop: Crop, *, flip: float, seed: int, threads: int, ahead: int
    ) -> None:
        """Prepare; Python's threads start when they are first needed.

        Args:
            source: Where samples are read.
            crop: What is cut out of them.
            flip: Probability of a horizontal flip.
            seed: Keys the crops.
            threads: Decoding threads.
            ahead: Most batches under way at a time.
        """
        self._source = source
        self._crop = crop
        self._flip = flip
        self._seed = seed
        native = core()
        self._native = None if native is None else NativeDecoder(native, source, threads)
        self._batches = ThreadPoolExecutor(ahead, thread_name_prefix="fastdata-batch")
        self._samples = ThreadPoolExecutor(threads, thread_name_prefix="fastdata-decode")

    def submit(
        self, epoch: int, ids: Ids, out: Pixels, done: Callable[[npt.NDArray[np.int64]], T]
    ) -> Filling[T]:
        """Begin to fill a batch; returns at once.

        Args:
            epoch: Epoch, which keys the crops.
            ids: (N,) samples.
            out: (N, h, w, 3) uint8, C-contiguous, not touched by anybody else until the end.
            done: Called with the (N,) int64 labels once all samples are there; gives the result.
        """
        filling: Filling[T] = Filling()

        def run() -> T:
            rows = self._source.rows(ids)
            if self._native is None:
                failures = self._fill_here(filling, epoch, ids, rows, out)
            else:
                failures = self._fill_natively(self._native, filling, epoch, ids, rows, out)
            if failures:  # of several the first, which does not depend on timing
                raise failures[min(failures)]
            return done(rows["label"].astype(np.int64))

        filling.result = self._batches.submit(run)
        return filling

    def close(self) -> None:
        """End the threads; samples under way are finished first."""
        self._batches.shutdown(wait=True, cancel_futures=True)
        self._samples.shutdown(wait=True, cancel_futures=True)
        self._native = None

    def _fill_natively(
        self,
        native: NativeDecoder,
        filling: Filling[T],
        epoch: int,
        ids: Ids,
        rows: npt.NDArray[Any],
        out: Pixels,
    ) -> Failures:
        encoded = native.encoded(ids, rows)
        sizes = _sizes(rows)
        jpeg = (rows["flags"] & _FORMAT) == _JPEG
        if not sizes.all():  # a folder's sizes are only known from the files themselves
            everything = np.arange(len(ids))
            job = native.load(encoded)
            filling.watch(job)
            failures = native.finish(job, ids, everything)
            if failures or filling.cancelled:
                return failures
            encoded, sizes = job.samples(), np.array(job.sizes(), np.int64)
            jpeg = sizes[:, 0] > 0
        plan = self._plan(np.maximum(sizes, 1), ids, epoch)
        crcs = np.ascontiguousarray(rows["crc"]) if self._source.has_checksums else _NONE
        places = np.flatnonzero(jpeg)
        job = native.fill(encoded, crcs, places, plan, out)
        filling.watch(job)
        try:
            failures = self._fill_here(filling, epoch, ids, rows, out, np.flatnonzero(~jpeg))
        finally:
            failed = native.finish(job, ids, places)
        return failures | failed

    def _fill_here(
        self,
        filling: Filling[T],
        epoch: int,
        ids: Ids,
        rows: npt.NDArray[Any],
        out: Pixels,
        places: Places | None = None,
    ) -> Failures:
        """Fill the given places, or all, on Python's threads."""
        chosen = range(len(ids)) if places is None else places.tolist()
        if not chosen:
            return {}
        sizes = _sizes(rows)
        plan = self._plan(sizes, ids, epoch) if sizes.all() else None

        def fill(place: int) -> None:
            if not filling.cancelled:
                self._fill_sample(epoch, ids, plan, place, out[place])

        futures = {place: self._samples.submit(fill, place) for place in chosen}
        wait(futures.values())  # also after a failure: the buffer must be let go
        errors = {place: future.exception() for place, future in futures.items()}
        return {place: error for place, error in errors.items() if error is not None}

    def _fill_sample(
        self, epoch: int, ids: Ids, plan: CropPlan | None, place: int, out: Pixels
    ) -> None:
        one = ids[place : place + 1]
        data = self._source.read(int(one[0]))
        try:
            if plan is None:
                info = probe(data)
                plan, place = self._plan(np.array([[info.width, info.height]]), one, epoch), 0
            decode_crop(data, plan, place, out)
        except DecodeError as error:
            (key,) = self._source.keys(one)
            raise DecodeError(f"{self._source.path}: sample {key!r}: {error}") from error

    def _plan(self, sizes: npt.NDArray[np.int64], ids: Ids, epoch: int) -> CropPlan:
        return self._crop.plan(sizes, ids, seed=self._seed, epoch=epoch, flip=self._flip)


_NONE = np.empty(0, np.uint32)


def _sizes(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """(N, 2) width and height."""
    return np.stack([rows["width"], rows["height"]], axis=1).astype(np.int64)
