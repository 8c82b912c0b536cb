"""Opens every file that fastdata writes: whole or not at all, and never through a link.

A folder may have been downloaded, so the names in it are not trusted: one may be a link to a file
elsewhere, a second name of somebody's file, or a FIFO. Names are therefore looked up in a folder
that is already open, and only two kinds of file are written: one that was just created there, and
one that is known to be a regular file with no other name. The folder itself may be a link, since
the user named it.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from fastdata.errors import BusyError, DestinationError

# A temporary name is the final one with this appended: a reader that looks for *.tar or *.lmdb
# never picks up an unfinished file.
TMP_SUFFIX = ".tmp"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# The content of a lock file: a process id, or what a power cut leaves of it.
_LOCK = re.compile(rb"[0-9\n\0]*")
_REMEDY = "fastdata never makes one here; remove it"


def temporary(path: Path) -> Path:
    """The name under which ``path`` is written until it is complete."""
    return path.with_name(path.name + TMP_SUFFIX)


class Folder:
    """An open folder, through which files in it are created, opened, renamed and removed.

    Every OSError names the full path.

    Attributes:
        path: Its path, for errors.
        fd: Its descriptor.
    """

    def __init__(self, path: str | os.PathLike[str], fd: int | None = None) -> None:
        """Open a folder by its path, which may contain links, or take over a descriptor."""
        self.path = os.fspath(path)
        self.fd = os.open(path, _FOLDER) if fd is None else fd

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)

    def subfolder(self, name: str | bytes) -> "Folder":
        """Open a folder within this one; create it if it does not exist.

        Raises:
            DestinationError: The name is a link, or not a folder.
        """
        with _naming(self.full(name)):
            try:
                try:
                    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd)
                except FileNotFoundError:
                    os.mkdir(name, dir_fd=self.fd)
                    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                raise DestinationError(
                    f"{self.full(name)}: a link or a file in place of a folder; remove it"
                ) from None
        return Folder(self.full(name), fd)

    def create(self, name: str | bytes) -> int:
        """Open a new file for reading and writing; whatever has the name is removed first."""
        # O_EXCL: should somebody recreate the name after its removal, that is an error.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.remove(name)
        with _naming(self.full(name)):
            return above_standard(os.open(name, flags, 0o666, dir_fd=self.fd))

    def write(self, name: str | bytes, data: bytes) -> None:
        """Write a new file without syncing it; whatever has the name is removed first."""
        fd = self.create(name)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)

    def open_own(self, name: str | bytes, flags: int) -> int:
        """Open a file that fastdata wrote earlier, or with ``O_CREAT`` a new one.

        Raises:
            DestinationError: The name is a link, a FIFO or the like or, when opened for writing, a
                file that has another name.
        """
        # O_NONBLOCK: opening a FIFO would wait for its other end.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with _naming(self.full(name)):
            try:
                fd = above_standard(os.open(name, flags, 0o666, dir_fd=self.fd))
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise DestinationError(f"{self.full(name)}: a symbolic link; {_REMEDY}") from None
        status = os.fstat(fd)
        what = None
        if not stat.S_ISREG(status.st_mode):
            what = "not a regular file"
        elif status.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
            # Under its other name it may be anybody's file, which writing would change.
            what = "a hard link to a file that has another name, too"
        if what is not None:
            os.close(fd)
            raise DestinationError(f"{self.full(name)}: {what}; {_REMEDY}")
        return fd

    def status(self, name: str | bytes) -> os.stat_result:
        """Status of what has the name; links are not followed."""
        with _naming(self.full(name)):
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def rename(self, old: str | bytes, new: str | bytes, into: "Folder | None" = None) -> None:
        """Rename a file, within this folder or into another; whatever has that name is replaced."""
        target = into or self
        with _naming(target.full(new)):
            os.replace(old, new, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def remove(self, name: str | bytes) -> None:
        """Remove a file, if there is one; of a link, only the link."""
        with _naming(self.full(name)), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Make renames and removals durable; without it a power cut may undo them."""
        try:
            os.fsync(self.fd)
        except OSError as error:
            # Some network and FUSE file systems cannot sync a folder; nobody can do more there.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise

    def full(self, name: str | bytes) -> str:
        """Path of a file in this folder, for errors."""
        return os.path.join(self.path, os.fsdecode(name))


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Make an OSError show the full path instead of a name within a folder."""
    try:
        yield
    except OSError as error:  # from a call with dir_fd, which knows only the name
        error.filename, error.filename2 = path, None
        raise


def create(path: Path) -> int:
    """Open a new file for reading and writing; whatever has the name is removed first.

    Raises:
        OSError: It cannot be created.
    """
    with Folder(path.parent) as folder:
        return folder.create(path.name)


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that fastdata wrote earlier; see :meth:`Folder.open_own`.

    Raises:
        DestinationError: It is a link, or not a regular file.
        OSError: It cannot be opened.
    """
    with Folder(path.parent) as folder:
        return folder.open_own(path.name, flags)


def refuse_link(path: Path) -> None:
    """Refuse a link where a folder is to be written into a folder that the user named.

    Raises:
        DestinationError: It is one.
    """
    if path.is_symlink():
        raise DestinationError(f"{path}: a symbolic link; {_REMEDY}")


def own_size(path: Path) -> int | None:
    """Size of a file to which fastdata may append; None if there is none."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return status.st_size
    return None


def above_standard(fd: int) -> int:
    """Move an open file to a descriptor above 2.

    In a process that was started with a standard stream closed, the next file that is opened gets
    its number, and what libraries print would end up in that file.
    """
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)  # the lowest free one from 3 on
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file so that its name always has the old content or the new one, never a mixture.

    Args:
        path: The final name; its folder must exist.
        data: The content, or a function that writes it to the open file.

    Raises:
        OSError: The file cannot be written; ``path`` is as before, and no temporary file is left.
    """
    with Folder(path.parent) as folder:
        write_temporary(folder, path.name, data)
        try:
            folder.rename(path.name + TMP_SUFFIX, path.name)
        except BaseException:
            folder.remove(path.name + TMP_SUFFIX)
            raise
        folder.sync()


def write_temporary(folder: Folder, name: str, data: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file under its temporary name and sync it; on an error nothing is left."""
    tmp = name + TMP_SUFFIX
    fd = folder.create(tmp)
    try:
        with os.fdopen(fd, "wb") as file:
            if callable(data):
                data(file)
            else:
                file.write(data)
            # Before the rename: or after a power cut the final name might stand for an empty file.
            sync(file)
    except BaseException:
        folder.remove(tmp)
        raise


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all bytes to a descriptor; a single system call may write fewer."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def sync(file: BinaryIO) -> None:
    """Flush an open file, and wait until its content is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def publish(path: Path) -> None:
    """Rename a file that is complete and synced from its temporary name to ``path``, durably."""
    with Folder(path.parent) as folder:
        folder.rename(path.name + TMP_SUFFIX, path.name)
        folder.sync()


def fsync_folder(path: Path) -> None:
    """Make renames and removals in a folder durable; without it a power cut may undo them."""
    with Folder(path) as folder:
        folder.sync()


class Lock:
    """A lock file that keeps out a second process while the first one lives.

    The kernel frees the lock when its holder ends, however it ends, so the file of a process that
    was killed is no obstacle. The file contains the holder's process id, and is removed on release.

    Args:
        path: The lock file; its folder must exist.
        what: The path that the lock protects, for error messages.
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
            DestinationError: The name belongs to something that is not a lock of fastdata.
            OSError: The lock file cannot be created.
        """
        self._folder = Folder(self._path.parent)
        try:
            fd = -1
            while fd < 0:
                fd = self._try()
        except BaseException:
            self._folder.close()
            raise
        self._fd, self._process = fd, os.getpid()
        try:  # write down who holds it, for the error that others get
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
        """Remove the file, then free the lock; the other order might remove the next holder's file.

        A forked child removes nothing: the lock is its parent's.
        """
        fd, self._fd = self._fd, -1
        try:
            if os.getpid() == self._process:
                self._folder.remove(self._path.name)
        finally:
            self._folder.close()
            os.close(fd)

    def _try(self) -> int:
        """Return a descriptor that holds the lock, or -1 if its holder just removed the file."""
        fd = self._folder.open_own(self._path.name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._refuse_other(fd)
            # The lock is on the file, not on its name, which the last holder may have removed.
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

    def _refuse_other(self, fd: int) -> None:
        """Refuse a file with content that no lock has: it is somebody's."""
        if not _LOCK.fullmatch(os.pread(fd, 32, 0)):
            raise DestinationError(f"{self._path}: not a lock of fastdata; move it away")

    def _is_current(self, fd: int) -> bool:
        """Whether the locked file still has its name."""
        try:
            there = self._folder.status(self._path.name)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(fd))
