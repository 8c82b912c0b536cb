"""Every file that fastdata writes is opened here: whole or not at all, and never through a link.

A folder may have been downloaded, so the names in it are not trusted: one may be a link to a file
elsewhere, a second name of somebody's file, or a FIFO. Names are therefore looked up in a folder
that was opened before. What is written is a file that was just created there, or one that is known
to be a regular file with no other name. The folder itself may be a link: its user named it.
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
# What a lock holds: a number, or whatever a power cut leaves of it.
_LOCK = re.compile(rb"[0-9\n\0]*")
_REMEDY = "fastdata never makes one here; remove it"


def temporary(path: Path) -> Path:
    """The sibling under whose name ``path`` is written until it is whole."""
    return path.with_name(path.name + TMP_SUFFIX)


class Folder:
    """An open folder, by which the files in it are created, opened, renamed and removed.

    Every OSError names the full path.

    Attributes:
        path: Its path, for errors.
        fd: Its descriptor.
    """

    def __init__(self, path: str | os.PathLike[str], fd: int | None = None) -> None:
        """Open a folder by its path, which may lead through links, or take over a descriptor."""
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
        """Open a folder within this one, and make it first where there is none.

        Raises:
            DestinationError: The name is a link, or no folder.
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
        """Open a new file for reading and writing, in place of whatever has the name."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.remove(name)
        with _naming(self.full(name)):
            return above_standard(os.open(name, flags, 0o666, dir_fd=self.fd))

    def write(self, name: str | bytes, data: bytes) -> None:
        """Write a new file in place of whatever has the name, at once and unsynced."""
        fd = self.create(name)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)

    def open_own(self, name: str | bytes, flags: int) -> int:
        """Open a file that fastdata wrote earlier, or with ``O_CREAT`` a new one.

        Raises:
            DestinationError: The name leads to something that is not such a file: a link, a FIFO,
                or, where it is opened for writing, a file with another name besides.
        """
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
            what = "a hard link to a file that has another name, too"
        if what is not None:
            os.close(fd)
            raise DestinationError(f"{self.full(name)}: {what}; {_REMEDY}")
        return fd

    def status(self, name: str | bytes) -> os.stat_result:
        """Status of what has the name, links not followed."""
        with _naming(self.full(name)):
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def rename(self, old: str | bytes, new: str | bytes, into: "Folder | None" = None) -> None:
        """Give a file another name, in this folder or in another; a link of that name goes."""
        target = into or self
        with _naming(target.full(new)):
            os.replace(old, new, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def remove(self, name: str | bytes) -> None:
        """Remove a file, if there is one; of a link, the link."""
        with _naming(self.full(name)), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Make renames and removals last; without it a power cut may undo them."""
        try:
            os.fsync(self.fd)
        except OSError as error:
            # Some network and FUSE file systems cannot sync a folder; there is nothing else to do.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise

    def full(self, name: str | bytes) -> str:
        """The path of a file in it, for errors."""
        return os.path.join(self.path, os.fsdecode(name))


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Let an OSError name a path, not a name within a folder."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


def create(path: Path) -> int:
    """Open a new file for reading and writing, in place of whatever has the name.

    Raises:
        OSError: It cannot be created.
    """
    with Folder(path.parent) as folder:
        return folder.create(path.name)


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that fastdata wrote earlier; see :meth:`Folder.open_own`.

    Raises:
        DestinationError: It is a link, or no regular file.
        OSError: It cannot be opened.
    """
    with Folder(path.parent) as folder:
        return folder.open_own(path.name, flags)


def refuse_link(path: Path) -> None:
    """Refuse a link in the place of a folder that is written within one that the user named.

    Raises:
        DestinationError: It is one.
    """
    if path.is_symlink():
        raise DestinationError(f"{path}: a symbolic link; {_REMEDY}")


def own_size(path: Path) -> int | None:
    """Size of a file that fastdata may continue to write; None where there is none."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return status.st_size
    return None


def above_standard(fd: int) -> int:
    """The same open file under a descriptor above 2.

    A process that was started with a standard stream closed gets its number for the next file that
    it opens; what libraries print would then be written into that file.
    """
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file so that its name always stands for the old content or for the new one.

    Args:
        path: The final name; its folder must exist.
        data: The content, or a function that writes it to the open file.

    Raises:
        OSError: The file cannot be written; ``path`` is then as it was, and no temporary is left.
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
    """Write a file under its temporary name, and sync it; on an error none is left."""
    tmp = name + TMP_SUFFIX
    fd = folder.create(tmp)
    try:
        with os.fdopen(fd, "wb") as file:
            if callable(data):
                data(file)
            else:
                file.write(data)
            sync(file)
    except BaseException:
        folder.remove(tmp)
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


def publish(path: Path) -> None:
    """Give a file that was written under the temporary name and synced its final one, lastingly."""
    with Folder(path.parent) as folder:
        folder.rename(path.name + TMP_SUFFIX, path.name)
        folder.sync()


def fsync_folder(path: Path) -> None:
    """Make renames and removals in a folder last; without it a power cut may undo them."""
    with Folder(path) as folder:
        folder.sync()


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
            DestinationError: Something that is no lock of ours has its name.
            OSError: The lock file cannot be made.
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
                self._folder.remove(self._path.name)
        finally:
            self._folder.close()
            os.close(fd)

    def _try(self) -> int:
        """A descriptor that holds the lock, or -1 if the file was removed while it was taken."""
        fd = self._folder.open_own(self._path.name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._refuse_other(fd)
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
        """Refuse a file that holds what no lock does."""
        if not _LOCK.fullmatch(os.pread(fd, 32, 0)):
            raise DestinationError(f"{self._path}: no lock of fastdata; move it away")

    def _is_current(self, fd: int) -> bool:
        """Whether the locked file is still the one of this name."""
        try:
            there = self._folder.status(self._path.name)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(fd))
