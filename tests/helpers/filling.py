"""Calls of the native core's threads, for its tests."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
from jpegs import Pixels

from fastdata.images.limits import JpegLimits
from fastdata.plan.crop import CropPlan

Box = tuple[int, int, int, int]
LIMITS = JpegLimits()
MEMORY = 1 << 40
READ, CHECKSUM, DECODE, OTHER = range(4)  # kinds of failures
SENTINEL = 77
NO_CHECKSUMS = np.empty(0, np.uint32)


class Failure(NamedTuple):
    """What a job says of its first failure."""

    row: int
    kind: int
    message: bytes


class Crops(NamedTuple):
    """What to cut out of N images of unknown size; see CropPlan."""

    regions: Sequence[Box]
    scaled: Sequence[tuple[int, int]]
    cut: tuple[int, int] = (0, 0)
    flip: bool = False

    def plan(self) -> CropPlan:
        """The plan that fill() takes."""
        count = len(self.regions)
        return CropPlan(
            size=np.zeros((count, 2), np.int64),
            source=np.array(self.regions, np.int64).reshape(count, 4),
            scaled=np.array(self.scaled, np.int64).reshape(count, 2),
            cut=np.tile(np.array(self.cut, np.int64), (count, 1)),
            flip=np.full(count, self.flip),
        )


def pool(core: ModuleType, threads: int = 1, *, libjpeg: bool = False) -> Any:
    """Threads with the package's limits."""
    return core.WorkerPool(threads, LIMITS, MEMORY, libjpeg=libjpeg)


def whole_files(core: ModuleType, paths: Sequence[Path]) -> Any:
    """Files as a source."""
    return core.WholeFiles([os.fsencode(path) for path in paths])


def begin(
    threads: Any, source: Any, crops: Crops, out: Pixels, crcs: npt.NDArray[np.uint32]
) -> Any:
    """Submit a batch."""
    count = len(crops.regions)
    places = np.arange(count, dtype=np.int64)
    return threads.fill(source, crcs, places, crops.plan(), out, keep_going=False)


def end(job: Any) -> Failure | None:
    """Wait for a job."""
    assert job.wait(240)
    failures = job.failures()
    return Failure(*failures[0]) if failures else None


def fill(
    threads: Any,
    source: Any,
    crops: Crops,
    shape: tuple[int, int],
    crcs: npt.NDArray[np.uint32] = NO_CHECKSUMS,
) -> tuple[Pixels, Failure | None]:
    """A batch of crops (N, height, width, 3), and what went wrong."""
    out = np.full((len(crops.regions), *shape, 3), SENTINEL, np.uint8)
    job = begin(threads, source, crops, out, crcs)
    return out, end(job)


def crc(data: bytes) -> int:
    """CRC-32C by another library."""
    return int(google_crc32c.value(data))


def compare_bytes(threads: Any, source: Any, expected: Sequence[bytes]) -> Failure | None:
    """Read a source's rows and check that they are what is expected.

    The output window lies outside of the image, so nothing is decoded, but checksums are compared.
    """
    count = len(expected)
    crops = Crops([(0, 0, 1, 1)] * count, [(1, 1)] * count, cut=(9, 9))
    crcs = np.array([crc(data) for data in expected], np.uint32)
    return fill(threads, source, crops, (1, 1), crcs)[1]


class Decoder:
    """One thread that decodes parts of one image at a time."""

    def __init__(self, core: ModuleType, folder: Path, *, libjpeg: bool = False) -> None:
        """Files go to `folder`; with `libjpeg` the core leaves JPEGs to libjpeg-turbo."""
        self._core = core
        self._path = folder / "image.jpg"
        self._threads = pool(core, libjpeg=libjpeg)
        self._data = b""

    def region(self, data: bytes, box: Box) -> Pixels | Failure:
        """The pixels of x, y, width, height."""
        size = box[2:]
        out, failure = self.crop(data, Crops([box], [size]), size[::-1])
        return out if failure is None else failure

    def crop(
        self, data: bytes, crops: Crops, shape: tuple[int, int]
    ) -> tuple[Pixels, Failure | None]:
        """One crop and what went wrong."""
        if data is not self._data or not data:
            self._path.write_bytes(data)
            self._data = data
        source = whole_files(self._core, [self._path])
        out, failure = fill(self._threads, source, crops, shape)
        return out[0], failure
