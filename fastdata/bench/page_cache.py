"""Getting files into and out of the page cache, and counting what came from storage."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fastdata.system.threads import Threads

_READERS = 8
_PIECE = 1 << 20
_ROOM = 0.8  # share of the free memory that files may take up
_MEMINFO = Path("/proc/meminfo")
_IO = Path("/proc/self/io")


def files(path: Path) -> list[Path]:
    """The file at ``path``, or all regular files below it."""
    if not path.is_dir():
        return [path]
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return [file for file in found if file.is_file()]  # reading a pipe would never end


def evict(path: Path) -> bool:
    """Ask the kernel to drop a data set's files from its page cache.

    It keeps pages that another program has mapped.

    Returns:
        Whether this system has such a request.
    """
    if not hasattr(os, "posix_fadvise"):  # macOS
        return False
    for file in files(path):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # some read-only file systems cannot sync
                os.fsync(descriptor)  # dirty pages would stay in the cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return True


def warm(path: Path, tell: Callable[[int, int], None] = lambda *_: None) -> bool:
    """Read a data set's files into the page cache.

    Args:
        path: A file, or a folder with files.
        tell: Called with bytes read and the total.

    Returns:
        Whether they fit into memory; if not, nothing was read.
    """
    found = files(path)
    total = sum(file.stat().st_size for file in found)
    room = _available_memory()
    if room is not None and total > room * _ROOM:  # reading the rest would evict the beginning
        return False
    done = 0
    with Threads(_READERS, "fastdata-warm") as pool:
        for size in pool.map(_read, found):
            done += size
            tell(done, total)
    return True


def from_storage() -> int | None:
    """Bytes that this process has read from storage so far, proc_pid_io(5); None where unknown."""
    try:
        lines = _IO.read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(": ", 1) for line in lines)
    return int(values["read_bytes"]) if "read_bytes" in values else None


def _read(file: Path) -> int:
    buffer = bytearray(_PIECE)
    size = 0
    with file.open("rb", buffering=0) as opened:
        while count := opened.readinto(buffer):
            size += count
    return size


def _available_memory() -> int | None:
    """Bytes of memory that programs can still allocate; None where unknown."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    return int(values["MemAvailable"].split()[0]) << 10 if "MemAvailable" in values else None
