"""The native core's threads, with Python's errors."""

import os
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.crop import CropPlan
from fastdata.errors import DecodeError, FastdataError, SampleError
from fastdata.limits import MAX_PIXELS, MAX_SCANS, MAX_SEGMENTS
from fastdata.source import Ids, Source

Places = npt.NDArray[np.int64]
Failures = dict[int, BaseException]
"""What went wrong, by place in the batch."""

_ERRORS = (SampleError, SampleError, DecodeError, FastdataError)  # by the core's RowError
_SECONDS = 60.0  # between looks at a job, whose end wakes the waiter by itself


class NativeDecoder:
    """A pool of native threads that read, check, decode, crop and resize JPEGs."""

    def __init__(self, core: ModuleType, source: Source, threads: int) -> None:
        """Start the threads; they end with this object."""
        self._source = source
        self._core = core
        self._pool = core.WorkerPool(threads, MAX_PIXELS, MAX_SCANS, MAX_SEGMENTS)

    def encoded(self, ids: Ids, rows: npt.NDArray[Any]) -> Any:
        """Where the encoded bytes of N samples are, for :meth:`load` and :meth:`fill`."""
        return self._source.encoded(self._core, ids, rows)

    def load(self, encoded: Any) -> Any:
        """Begin to read samples whose sizes are unknown; returns the job."""
        return self._pool.load(encoded)

    def fill(
        self,
        encoded: Any,
        crcs: npt.NDArray[np.uint32],
        places: Places,
        plan: CropPlan,
        out: npt.NDArray[np.uint8],
    ) -> Any:
        """Begin to decode the JPEGs at ``places`` of a batch; returns the job.

        Args:
            encoded: From :meth:`encoded`, or the ``samples()`` of a job of :meth:`load`.
            crcs: (N,) CRC-32C of each sample, or empty where there are none.
            places: (M,) places of the batch to fill.
            plan: Crops of all N samples.
            out: (N, h, w, 3) uint8; kept alive by the caller until :meth:`finish` returned.
        """
        return self._pool.fill(
            encoded, crcs, places, plan.source, plan.scaled, plan.cut, plan.flip, out
        )

    def finish(self, job: Any, ids: Ids, places: Places) -> Failures:
        """Wait for a job; the failure of its first sample that failed, if any did."""
        while not job.wait(_SECONDS):
            pass
        failure = job.failure()
        if failure is None:
            return {}
        row, kind, message = failure
        place = int(places[row])
        (key,) = self._source.keys(ids[place : place + 1])
        text = f"{self._source.path}: sample {key!r}: {os.fsdecode(message)}"
        return {place: _ERRORS[kind](text)}
