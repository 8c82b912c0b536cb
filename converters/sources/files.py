"""Reads one file of a source: as it was listed, or not at all."""

import errno
import os
import stat

from fastdata.converters.sources.file_status import read_failure
from fastdata.errors import SourceError

CHANGED = "changed while it was read"

# The process's own trouble, not the file's: skipping the file would lose it for nothing.
_FATAL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def read_file(name: str, path: bytes, size: int) -> bytes | str:
    """A file's bytes, or why there are none.

    Args:
        name: The file, for errors.
        path: The file, as the system opens it.
        size: Its size when it was listed.

    Raises:
        SourceError: It cannot be read for a reason that lies in this process.
    """
    try:
        data = _read_unchanged(path, size)
    except OSError as error:
        return failure(name, error)
    return CHANGED if data is None else data


def failure(name: str, error: OSError) -> str:
    """Why a file is left out that the system would not read.

    Raises:
        SourceError: The reason lies in this process.
    """
    if error.errno in _FATAL:
        raise SourceError(
            f"{name}: cannot read this file: {error.strerror}; raise the limit (ulimit) or use "
            "fewer workers"
        ) from error
    return read_failure(error)


def _read_unchanged(path: bytes, size: int) -> bytes | None:
    """The file's bytes; None if it is not the one that was listed, or changes meanwhile."""
    # Without NONBLOCK a FIFO that took the file's place would hang the pack.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode) or before.st_size != size:
            return None
        data = file.read(size + 1)
        after = os.fstat(fd)
    if len(data) != size or after.st_mtime_ns != before.st_mtime_ns:
        return None
    return data
