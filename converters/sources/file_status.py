"""Which paths may be files of a data set, and the reasons for leaving out the others."""

import errno
import os
import stat

MAX_BYTES = 2**32 - 1  # of one file: the catalog states lengths in 32 bits, and so does LMDB
EMPTY = "empty file"


def examine(path: str) -> os.stat_result | str:
    """Status of what a path leads to, or why the system does not say."""
    try:
        return os.stat(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and os.path.islink(path):
            return "broken symbolic link"
        return read_failure(error)


def unfit(status: os.stat_result) -> str | None:
    """Why a path that is no folder cannot be a file of a data set; ``EMPTY`` may be a field."""
    if stat.S_ISFIFO(status.st_mode):
        return "not a regular file: FIFO"
    if stat.S_ISSOCK(status.st_mode):
        return "not a regular file: socket"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file: device"
    if status.st_size == 0:
        return EMPTY
    return "over 4 GiB" if status.st_size > MAX_BYTES else None


def read_failure(error: OSError) -> str:
    """Reason for leaving out what the system would not read."""
    if isinstance(error, FileNotFoundError):
        return "vanished"
    if error.errno == errno.ELOOP:
        return "symbolic link loop"
    return f"unreadable: {error.strerror}"
