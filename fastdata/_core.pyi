"""
Native core of fastdata; fastdata.probe.core() tells whether it is there.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def hold_threads() -> None:
    """
    Let no other thread return from the core any more; to be called when the interpreter ends.
    """

def libjpeg_turbo_version() -> str:
    """Return the version of the linked libjpeg-turbo, for example '3.1.0'."""

def probe_jpeg(data: bytes | memoryview, max_pixels: int, max_scans: int, max_segments: int) -> tuple[int, int, int, str, bool, bool, int, int]:
    """
    Return the fields of fastdata.jpeg_header.JpegHeader, in its order; raise DecodeError.
    """

def transcode_jpeg(data: bytes | memoryview, run_pixels: int, max_pixels: int, max_scans: int, max_segments: int, damaged: bool = False) -> tuple[bytes | None, str, bool, bool]:
    """
    Return the image coded in restart runs, or None and why it is kept as it is, whether libjpeg warns of it without harm, and whether bytes are left over in its coded data; with `damaged`, what libjpeg makes of damage. Raise DecodeError.
    """

def decode_crop(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], region: Annotated[NDArray[numpy.int64], dict(shape=(None, 4), order='C', device='cpu', writable=False)], scaled: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], cut: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], flip: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None, 3), order='C', device='cpu')], max_pixels: int, max_scans: int, max_segments: int) -> None:
    """
    Decode one crop of a JPEG into `out` in this thread; raise DecodeError.
    """

def resize_crop(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu', writable=False)], region: Annotated[NDArray[numpy.int64], dict(shape=(None, 4), order='C', device='cpu', writable=False)], scaled: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], cut: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], flip: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None, 3), order='C', device='cpu')]) -> None:
    """Resize one crop of a decoded image into `out` in this thread."""

def cut_jpeg(data: bytes | memoryview, x0: int, y0: int, x1: int, y1: int, max_pixels: int, max_scans: int, max_segments: int) -> tuple[bytes | None, int, int]:
    """
    Return a JPEG of the restart runs that a region needs, and the place of its first pixel in the image; None where there are no runs to leave out. Raise DecodeError.
    """

def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C of the bytes."""

class ByteSource:
    """Where the encoded bytes of a batch come from."""

class FileSet:
    """The shards of a data set."""

    def __init__(self, paths: Sequence[bytes], most_open: int) -> None: ...

class FileRanges(ByteSource):
    """Ranges of shards."""

    def __init__(self, files: FileSet, numbers: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class LoadedSamples(ByteSource):
    """Samples in memory."""

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

class Job:
    """
    A batch that is being worked on; its end waits until nothing touches it.
    """

    def cancel(self) -> None:
        """Start no further row."""

    def wait(self, seconds: float) -> bool:
        """Wait until no thread touches the batch; False if that takes longer."""

    def failures(self) -> list[tuple[int, int, bytes]]:
        """
        Row, kind and message of each failure by row; call it after wait(). There is more than the first one only where the job kept going.
        """

class LoadJob(Job):
    """Samples being read into memory and probed."""

    def samples(self) -> LoadedSamples:
        """What was read, as a source for fill()."""

    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of each JPEG; zeros for what is none."""

class WorkerPool:
    """
    Threads that read and decode batches, of which images that need much memory share `memory` bytes; with `libjpeg` by libjpeg-turbo alone, which gives the same pixels, to compare with.
    """

    def __init__(self, threads: int, max_pixels: int, max_scans: int, max_segments: int, memory: int, libjpeg: bool = False) -> None: ...

    @property
    def threads(self) -> int:
        """Threads that the system started, perhaps fewer than were asked for."""

    def fill(self, source: ByteSource, crcs: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], regions: Annotated[NDArray[numpy.int64], dict(shape=(None, 4), order='C', device='cpu', writable=False)], scaled: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], cut: Annotated[NDArray[numpy.int64], dict(shape=(None, 2), order='C', device='cpu', writable=False)], flip: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None, 3), order='C', device='cpu')], keep_going: bool) -> Job:
        """
        Decode the crops at `places` of a batch into `out`, which the job keeps alive and the caller leaves alone until it is done; `sizes` are those of the whole images.
        """

    def load(self, source: ByteSource, keep_going: bool) -> LoadJob:
        """Read samples into memory and probe them."""
