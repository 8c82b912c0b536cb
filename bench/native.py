"""The native core without a loader: images in memory in, crops of a batch out.

This measures decoding alone, the upper bound of fastdata's loader.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata import native
from fastdata.images import limits
from fastdata.plan.crop import CropPlan

NEEDS = ("fastdata._core",)

_LIMITS = limits.JpegLimits()
_MEMORY = 1 << 40  # bytes, so that no image waits for memory
_RUN_PIXELS = 32  # the default of `fastdata pack`
_DEADLINE = 60.0  # seconds


def packed(data: bytes) -> bytes:
    """The image as ``fastdata pack`` stores it."""
    runs, *_ = _core().transcode_jpeg(data, _RUN_PIXELS, _LIMITS)
    return data if runs is None else bytes(runs)


class MemoryDecoder:
    """Threads that decode crops of batches in memory."""

    def __init__(self, threads: int, *, libjpeg: bool = False) -> None:
        """Start the threads; with ``libjpeg`` they leave JPEGs to libjpeg-turbo."""
        self._pool = _core().WorkerPool(threads, _LIMITS, _MEMORY, libjpeg=libjpeg)
        self._unchecked = np.empty(0, np.uint32)

    def load(self, images: Sequence[bytes]) -> Any:
        """Copy a batch of encoded images into the core's memory, for :meth:`start`."""
        with tempfile.TemporaryDirectory() as folder:
            names = [Path(folder, str(number)) for number in range(len(images))]
            for name, data in zip(names, images, strict=True):
                name.write_bytes(data)
            job = self._pool.load(
                _core().WholeFiles([bytes(name) for name in names]), keep_going=False
            )
            _wait(job)
        return job.samples()

    def start(
        self,
        batch: Any,
        plan: CropPlan,
        out: npt.NDArray[np.uint8],
        crcs: npt.NDArray[np.uint32] | None = None,
    ) -> Any:
        """Start decoding a batch of N images into (N, size, size, 3), for :meth:`finish`.

        With (N) CRC-32C each image is checked first.
        """
        places = np.arange(len(out))
        return self._pool.fill(
            batch,
            self._unchecked if crcs is None else crcs,
            places,
            plan,
            out,
            keep_going=False,
        )

    def finish(self, job: Any) -> None:
        """Wait for a batch."""
        _wait(job)


def _wait(job: Any) -> None:
    if not job.wait(_DEADLINE):
        raise TimeoutError(f"no batch within {_DEADLINE:.0f} s")
    if job.failures():
        raise RuntimeError(f"row, kind, message: {job.failures()[0]}")


def _core() -> Any:
    return native.load()
