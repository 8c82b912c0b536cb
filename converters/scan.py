"""Lists the files of an image folder in flat arrays, in the order of torchvision's ImageFolder."""

import errno
import hashlib
import json
import os
import stat
from array import array
from pathlib import Path

import numpy as np

from fastdata.converters import keys
from fastdata.converters.listing import Listing, Skipped, count_reasons
from fastdata.errors import SourceError

MAX_BYTES = 2**32 - 1  # of one file: the catalog states lengths in 32 bits, and so does LMDB


def scan(source: Path, extensions: frozenset[str] | None = None) -> Listing:
    """List every file that may be an image.

    A folder with sub-folders is one of classes: the names of its sub-folders, sorted, are the
    classes, and what lies deeper belongs to them. A sub-folder without an image is a class too, so
    that labels agree between parts of a data set. A folder without sub-folders is flat.

    Symbolic links are followed, but not into a folder that holds them. Left out are names that
    start with a dot, files beside class folders, empty files and what is no regular file; such are
    never opened.

    Args:
        source: The folder.
        extensions: Endings without the dot and in lower case that files must have; without it,
            every file is listed, for a reader that tells images by their content.

    Raises:
        SourceError: The source is no readable folder, or nothing is left of it.
    """
    collector = _Collector(os.fspath(source), extensions)
    classes = _class_names(source)
    if classes:
        collector.skip_beside(set(classes))
        for label, name in enumerate(classes):
            for folder in collector.folders(name):
                collector.add_files(folder, label)
    else:
        collector.add_files("", -1)
    if not collector.sizes:
        raise SourceError(nothing_left(collector.root, collector.skipped))
    return collector.listing(classes)


def _class_names(source: Path) -> tuple[str, ...]:
    """Names of the folders in the source, sorted as ImageFolder sorts them."""
    try:
        with os.scandir(source) as entries:
            return tuple(sorted(e.name for e in entries if e.name[0] != "." and _is_folder(e)))
    except FileNotFoundError:
        raise SourceError(f"{source}: no such folder") from None
    except NotADirectoryError:
        raise SourceError(
            f"{source}: not a folder; give the folder that holds the images"
        ) from None
    except OSError as error:
        raise SourceError(f"{source}: cannot list this folder: {error.strerror}") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def nothing_left(source: str, skipped: list[Skipped]) -> str:
    """Message for a source of which no image is left."""
    if not skipped:
        return f"{source}: holds no image"
    reasons = ", ".join(f"{count} {reason}" for reason, count in count_reasons(skipped).items())
    return f"{source}: holds no image; left out: {reasons} (first: {skipped[0].name!r})"


class _Collector:
    """Grows the buffers of a listing."""

    def __init__(self, root: str, extensions: frozenset[str] | None) -> None:
        self.root = root
        self.extensions = extensions
        self.names = bytearray()
        self.ends = array("q")
        self.sizes = array("q")
        self.labels = array("i")
        self.numbers: dict[int, int] = {}
        self.skipped: list[Skipped] = []

    def listing(self, classes: tuple[str, ...]) -> Listing:
        """What was collected, as arrays."""
        ends = np.array(self.ends, np.int64)
        sizes = np.array(self.sizes, np.int64)
        digest = hashlib.sha256(json.dumps(classes).encode("ascii"))
        for column in (self.names, ends.astype("<i8").data, sizes.astype("<i8").data):
            digest.update(column)
        return Listing(
            root=self.root,
            classes=classes,
            labels=np.array(self.labels, np.int32),
            sizes=sizes,
            skipped=tuple(self.skipped),
            fingerprint=f"sha256:{digest.hexdigest()}",
            _names=bytes(self.names),
            _ends=ends,
            _numbers=self.numbers,
            _renamed={
                os.fsencode(old): os.fsencode(new)
                for old, new in keys.class_folders(classes).items()
            },
        )

    def skip_beside(self, classes: set[str]) -> None:
        """Note what lies in the source beside the class folders."""
        for name in sorted(os.listdir(self.root)):
            if name.startswith("."):
                self._skip(name, "hidden")
            elif name not in classes:
                self._skip(name, "beside class folders")

    def folders(self, top: str) -> list[str]:
        """A folder and all below it, sorted by path, relative to the root."""
        found: list[str] = []
        pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [(top, (self._identity(""),))]
        while pending:
            folder, above = pending.pop()
            try:
                identity = self._identity(folder)
                if identity in above:
                    self._skip(folder, "symbolic link loop")
                    continue
                with os.scandir(self._full(folder)) as entries:
                    inner = sorted(e.name for e in entries if e.name[0] != "." and _is_folder(e))
            except OSError as error:
                self._skip(folder, read_failure(error))
                continue
            found.append(folder)
            pending.extend((f"{folder}/{name}", (*above, identity)) for name in inner)
        return sorted(found)

    def add_files(self, folder: str, label: int) -> None:
        """Add the files of one folder, not those below it."""
        prefix = f"{folder}/" if folder else ""
        try:
            names = sorted(os.listdir(self._full(folder)))
        except OSError as error:
            self._skip(folder, read_failure(error))
            return
        start = len(self.sizes)
        accepted = []
        for name in names:
            size = self._accept(prefix + name)
            if size:
                accepted.append(name)
                self.names += os.fsencode(prefix + name)
                self.ends.append(len(self.names))
                self.sizes.append(size)
                self.labels.append(label)
        for place, number in keys.clashes(accepted).items():
            self.numbers[start + place] = number

    def _accept(self, name: str) -> int:
        """Size of a file that is listed; 0 for a folder and for what is skipped."""
        last = name.rpartition("/")[2]
        if last.startswith("."):
            return self._skip(name, "hidden")
        try:
            status = os.stat(self._full(name))
        except OSError as error:
            return self._skip(name, self._stat_failure(name, error))
        if stat.S_ISDIR(status.st_mode):
            return 0
        reason = _unfit(status) or self._other_extension(last)
        return self._skip(name, reason) if reason else status.st_size

    def _other_extension(self, name: str) -> str | None:
        ending = name.rpartition(".")[2].lower() if "." in name else ""
        if self.extensions is None or ending in self.extensions:
            return None
        return f"other extension: {ending or 'none'}"

    def _skip(self, name: str, reason: str) -> int:
        self.skipped.append(Skipped(name, reason))
        return 0

    def _stat_failure(self, name: str, error: OSError) -> str:
        if isinstance(error, FileNotFoundError) and Path(self._full(name)).is_symlink():
            return "broken symbolic link"
        return read_failure(error)

    def _identity(self, folder: str) -> tuple[int, int]:
        status = os.stat(self._full(folder))
        return status.st_dev, status.st_ino

    def _full(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root


def read_failure(error: OSError) -> str:
    """Reason for leaving out what the system would not read."""
    if isinstance(error, FileNotFoundError):
        return "vanished"
    if error.errno == errno.ELOOP:
        return "symbolic link loop"
    return f"unreadable: {error.strerror}"


def _unfit(status: os.stat_result) -> str | None:
    """Why a path that is no folder cannot be an image."""
    if stat.S_ISFIFO(status.st_mode):
        return "not a regular file: FIFO"
    if stat.S_ISSOCK(status.st_mode):
        return "not a regular file: socket"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file: device"
    if status.st_size == 0:
        return "empty file"
    return "over 4 GiB" if status.st_size > MAX_BYTES else None
