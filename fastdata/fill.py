"""Batches of pixels from a source: threads read, decode and crop straight into the buffer.

A failure travels as a value to whoever waits for the batch, with the key of its sample.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastdata.crop import Crop, CropPlan
from fastdata.decode import decode_crop
from fastdata.errors import DecodeError
from fastdata.probe import probe
from fastdata.source import Ids, Source

T = TypeVar("T")


class Fill(Generic[T]):
    """One batch being filled by several threads, each taking the next row until none is left."""

    def __init__(self, rows: int, work: Callable[[int], None], done: Callable[[], T]) -> None:
        """``work`` fills a row; ``done`` makes the result, on the thread that finishes last."""
        self.result: Future[T] = Future()
        self._work = work
        self._done = done
        self._rows = rows
        self._lock = threading.Lock()
        self._taken = 0
        self._finished = 0
        self._failures: dict[int, BaseException] = {}

    def run(self) -> None:
        """Fill rows until none is left; called on each thread that helps."""
        while (row := self._take()) is not None:
            try:
                self._work(row)
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
                self._failures[row] = error
                self.cancel()
            with self._lock:
                self._finished += 1
                last = self._finished == self._rows
            if last:
                self._finish()

    def cancel(self) -> None:
        """Start no further row; the result is then an error or never comes."""
        with self._lock:
            self._rows = self._taken

    def _take(self) -> int | None:
        with self._lock:
            if self._taken == self._rows:
                return None
            self._taken += 1
            return self._taken - 1

    def _finish(self) -> None:
        """Set the result; of several failures the first row's, which does not depend on timing."""
        if self._failures:
            self.result.set_exception(self._failures[min(self._failures)])
            return
        try:
            self.result.set_result(self._done())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self.result.set_exception(error)


class Filler:
    """Fills batches from one source on a pool of threads, in the order of submission."""

    def __init__(self, source: Source, crop: Crop, *, flip: float, seed: int, threads: int) -> None:
        """Start ``threads`` decoding threads; they end with :meth:`close` or with this object."""
        self._source = source
        self._crop = crop
        self._flip = flip
        self._seed = seed
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fastdata-decode")

    def submit(
        self,
        epoch: int,
        ids: Ids,
        out: npt.NDArray[np.uint8],
        done: Callable[[npt.NDArray[np.int64]], T],
    ) -> Fill[T]:
        """Begin to fill a batch; returns at once.

        Args:
            epoch: Epoch, which keys the crops.
            ids: (N,) samples.
            out: (N, h, w, 3) uint8, C-contiguous, not touched by anybody else until the end.
            done: Called with the (N,) int64 labels once all rows are filled; gives the result.
        """
        rows = self._source.rows(ids)
        sizes = np.stack([rows["width"], rows["height"]], axis=1).astype(np.int64)  # (N, 2)
        plan = self._plan(sizes, ids, epoch) if sizes.all() else None
        labels = rows["label"].astype(np.int64)
        fill = Fill(
            len(ids),
            lambda row: self._fill_row(epoch, ids, plan, row, out[row]),
            lambda: done(labels),
        )
        for _ in range(min(self._threads, len(ids))):
            self._pool.submit(fill.run)
        return fill

    def close(self) -> None:
        """End the threads; what is under way is finished first."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _plan(self, sizes: npt.NDArray[np.int64], ids: Ids, epoch: int) -> CropPlan:
        return self._crop.plan(sizes, ids, seed=self._seed, epoch=epoch, flip=self._flip)

    def _fill_row(
        self, epoch: int, ids: Ids, plan: CropPlan | None, row: int, out: npt.NDArray[np.uint8]
    ) -> None:
        data = self._source.read(int(ids[row]))
        try:
            if plan is None:  # a folder's sizes are only known from the files themselves
                info = probe(data)
                sizes = np.array([[info.width, info.height]], np.int64)
                plan, row, ids = self._plan(sizes, ids[row : row + 1], epoch), 0, ids[row : row + 1]
            decode_crop(data, plan, row, out)
        except DecodeError as error:
            (key,) = self._source.keys(ids[row : row + 1])
            raise DecodeError(f"{self._source.path}: sample {key!r}: {error}") from error
