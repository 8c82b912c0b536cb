"""Files that appear whole or not at all, and a lock between processes."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from fastdata.errors import BusyError

# A temporary name is the final one with this behind it: a reader that looks for *.tar or *.lmdb
# never picks up an unfinished file.
TMP_SUFFIX = ".tmp"


def temporary(path: Path) -> Path:
    """The sibling under whose name ``path`` is written until it is whole."""
    return path.with_name(path.name + TMP_SUFFIX)


def write_atomically(path: Path, data: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file so that its name always stands for the old content or for the new one.

    Args:
        path: The final name; its folder must exist.
        data: The content, or a function that writes it to the open file.

    Raises:
        OSError: The file cannot be written; ``path`` is then as it was, and no temporary is left.
    """
    tmp = temporary(path)
    try:
        with tmp.open("wb") as file:
            if callable(data):
                data(file)
            else:
                file.write(data)
            sync(file)
        publish(tmp, path)
    except BaseException:
        tmp.unlink(missing_ok=True)
        raise


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of it to a descriptor: one call of the system may take less."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def sync(file: BinaryIO) -> None:
    """Put what was written to an open file on the disk itself."""
    file.flush()
    os.fsync(file.fileno())


def publish(tmp: Path, path: Path) -> None:
    """Give a file that was synced its final name, lasting through a power cut."""
    tmp.replace(path)
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make renames and removals in a folder last; without it a power cut may undo them."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network and FUSE file systems cannot sync a folder; there is nothing else to do.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


class Lock:
    """A lock file that keeps a second process out while the first one lives.

    The kernel frees the lock with its holder, so the file of a holder that was killed is taken
    over. The file holds the holder's process id, and is removed at release.

    Args:
        path: The lock file, by custom ending in ``.lock``; its folder must exist.
        what: What the lock protects, for the message of the error.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._fd = -1
        self._process = -1

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            BusyError: Another process, or another part of this one, holds it.
            OSError: The lock file cannot be made.
        """
        fd = -1
        while fd < 0:
            fd = self._try()
        self._fd, self._process = fd, os.getpid()
        try:
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Remove the file, then free the lock: in the other order it could be another's file.

        In a forked child the lock is still its parent's.
        """
        fd, self._fd = self._fd, -1
        try:
            if os.getpid() == self._process:
                with contextlib.suppress(FileNotFoundError):
                    self._path.unlink()
        finally:
            os.close(fd)

    def _try(self) -> int:
        """A descriptor that holds the lock, or -1 if the file was removed while it was taken."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_current(fd):
                return fd
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise BusyError(
                f"{self._what}: process {holder} is writing into it; wait for it to end, or stop it"
            ) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return -1

    def _is_current(self, fd: int) -> bool:
        """Whether the locked file is still the one at the path."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(fd))
