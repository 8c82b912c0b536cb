"""The native core of fastdata, which is optional."""

from collections.abc import Sequence
from typing import Annotated

import fastdata.images.limits
import fastdata.plan.crop
import numpy
from numpy.typing import NDArray


def hold_threads() -> None:
    """
    Keep other threads from returning from the core; call it when the interpreter ends.
    """

def libjpeg_turbo_version() -> str:
    """Return the version of the linked libjpeg-turbo, for example '3.1.0'."""

def probe_jpeg(data: bytes | memoryview, limits: fastdata.images.limits.JpegLimits) -> tuple[int, int, int, str, bool, bool, int, int]:
    """
    Return the fields of JpegHeader in jpeg_header.py, in its order; raise DecodeError.
    """

def transcode_jpeg(data: bytes | memoryview, run_pixels: int, limits: fastdata.images.limits.JpegLimits, damaged: bool = False) -> tuple[bytes | None, str, bool, bool]:
    """
    Re-encode a JPEG with restart runs. Return it, or None and why it is kept as it is; whether libjpeg warns about it without harm; and whether bytes are left over in its coded data. With `damaged`, encode what libjpeg makes of damage. Raise DecodeError.
    """

def decode_crop(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], plan: fastdata.plan.crop.CropPlan, row: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu')], limits: fastdata.images.limits.JpegLimits) -> None:
    """
    Decode crop `row` of a plan into `out` in this thread; raise DecodeError.
    """

def resize_crop(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu', writable=False)], plan: fastdata.plan.crop.CropPlan, row: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu')]) -> None:
    """
    Cut crop `row` of a plan from a decoded image into `out` in this thread.
    """

def cut_jpeg(data: bytes | memoryview, x0: int, y0: int, x1: int, y1: int, limits: fastdata.images.limits.JpegLimits) -> tuple[bytes | None, int, int]:
    """
    Return a JPEG of the restart runs that a region needs, and the column and row of its first pixel in the image; None if there are no runs to leave out. Raise DecodeError.
    """

class ByteSource:
    """Where the encoded bytes of a batch come from."""

class FileSet:
    """The shards of a data set."""

    def __init__(self, paths: Sequence[bytes], most_open: int) -> None: ...

class FileRanges(ByteSource):
    """Ranges of shards."""

    def __init__(self, files: FileSet, numbers: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class LmdbFile:
    """An LMDB file that is read without mapping it."""

    def __init__(self, path: bytes) -> None: ...

class LmdbValues(ByteSource):
    """Parts of the values of an LMDB file."""

    def __init__(self, file: LmdbFile, keys: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class MixedRows(ByteSource):
    """Rows of several sources."""

    def __init__(self, parts: Sequence[ByteSource], numbers: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class WholeFiles(ByteSource):
    """Files by their paths."""

    def __init__(self, paths: Sequence[bytes]) -> None: ...

class LoadedSamples(ByteSource):
    """Samples in memory."""

class BatchJob:
    """
    A batch that is being worked on; dropping it waits until it is left alone.
    """

    def cancel(self) -> None:
        """Start no further row."""

    def wait(self, seconds: float) -> bool:
        """Wait until no thread touches the batch; False if that takes longer."""

    def failures(self) -> list[tuple[int, int, bytes]]:
        """
        Row, kind and message of each failure, by row, once wait() was true. Only a job that keeps going has more than the first.
        """

class LoadJob(BatchJob):
    """Samples being read into memory and probed."""

    def samples(self) -> LoadedSamples:
        """What was read, as a source for fill()."""

    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of each JPEG; zeros for other samples."""

class WorkerPool:
    """
    Threads that read and decode batches. Images that need much memory share `memory` bytes. With `libjpeg`, libjpeg-turbo decodes alone: the same pixels, to compare with.
    """

    def __init__(self, threads: int, limits: fastdata.images.limits.JpegLimits, memory: int, libjpeg: bool = False) -> None: ...

    @property
    def threads(self) -> int:
        """Threads that the system started, perhaps fewer than asked for."""

    def fill(self, source: ByteSource, crcs: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], plan: fastdata.plan.crop.CropPlan, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None, 3), order='C', device='cpu')], keep_going: bool) -> BatchJob:
        """
        Decode the crops at `places` of a batch into `out`, which the job keeps alive and nobody else may touch until it is done.
        """

    def load(self, source: ByteSource, keep_going: bool) -> LoadJob:
        """Read samples into memory and probe them."""
