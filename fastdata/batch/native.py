"""The native core in Python's terms: threads for batches, and JPEGs made smaller."""

import os
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata import native
from fastdata.batch.source import Ids, Source
from fastdata.errors import DecodeError, FastdataError, SampleError, ShardError
from fastdata.images.limits import MAX_PIXELS, JpegLimits
from fastdata.plan.crop import CropPlan
from fastdata.system import resources
from fastdata.system.threads import warn_of_fewer

Places = npt.NDArray[np.int64]
Failures = dict[int, BaseException]
"""What went wrong, by place in the batch."""

_ERRORS = (ShardError, SampleError, DecodeError, FastdataError)  # by the core's RowError


def cut_runs(
    data: bytes, x: int, y: int, width: int, height: int, *, max_pixels: int = MAX_PIXELS
) -> tuple[bytes, int, int]:
    """A smaller JPEG that holds a region of one with restart runs, pixels unchanged to the bit.

    Args:
        data: A JPEG.
        x: First column of the region, in pixels.
        y: First row.
        width: Columns.
        height: Rows.
        max_pixels: Refuse a larger image.

    Returns:
        The JPEG of the runs that the region needs, and the column and row of the image that its
        first pixel is. The data as they are, and zeros, where there are no runs to leave out, and
        without the native core.

    Raises:
        DecodeError: The bytes are no JPEG, or the region reaches out of the image.
    """
    core = native.load()
    if core is None:
        return data, 0, 0
    limits = JpegLimits(max_pixels)
    small, left, top = core.cut_jpeg(data, x, y, x + width, y + height, limits)
    return (data if small is None else small), left, top


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
        limits = JpegLimits(max_pixels)
        self._pool = core.WorkerPool(threads, limits, resources.memory_share())
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
        out: npt.NDArray[np.uint8],
        *,
        keep_going: bool,
    ) -> "NativeJob":
        """Begin to decode the JPEGs at ``places`` of a batch.

        Args:
            encoded: From :meth:`encoded`, or the ``samples()`` of a job of :meth:`load`.
            ids: (N,) samples.
            crcs: (N,) CRC-32C of each sample, or empty where there are none.
            places: (M,) places of the batch to fill.
            plan: Crops of all N samples.
            out: (N, h, w, 3) uint8, which the job keeps alive.
            keep_going: Go on with the others after a sample that failed.
        """
        job = self._pool.fill(encoded, crcs, places, plan, out, keep_going)
        return NativeJob(job, self._source, ids[places], places)


class NativeJob:
    """Work of the native threads on some samples of a batch."""

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
        """Width and height of each JPEG that was read; zeros for what is none."""
        sizes: list[tuple[int, int]] = self._job.sizes()
        return sizes
