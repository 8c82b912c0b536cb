"""Lists the files of an image folder in flat arrays, in the order of torchvision's ImageFolder."""

import os
import stat
from array import array
from pathlib import Path

import numpy as np

from fastdata.converters.sources import keys
from fastdata.converters.sources.fields import Beside, beside, check_field_name
from fastdata.converters.sources.file_status import EMPTY, examine, read_failure, unfit
from fastdata.converters.sources.listing import Listing, Skipped, count_reasons, fingerprint
from fastdata.errors import SourceError


def scan(
    source: Path,
    extensions: frozenset[str] | None = None,
    *,
    fields: tuple[str, ...] = (),
    classes: tuple[str, ...] | None = None,
) -> Listing:
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
        fields: Extensions of files that are no images but fields of the image with their stem.
        classes: Names of the classes in the order of their labels, instead of the sorted names.

    Raises:
        OptionError: A field cannot be called so.
        SourceError: The source is no readable folder, nothing is left of it, or it has a folder
            that is none of ``classes``.
    """
    for name in fields:
        check_field_name(name)
    collector = _Collector(os.fspath(source), extensions, tuple(sorted(set(fields))))
    folders = _class_names(source)
    labels = {name: label for label, name in enumerate(folders if classes is None else classes)}
    if folders:
        _check_classes(source, folders, labels)
        collector.skip_beside(set(folders))
        for name in folders:
            for folder in collector.folders(name):
                collector.add_files(folder, labels[name])
    elif classes is not None:
        raise SourceError(f"{source}: has no class folders, but names of classes were given")
    else:
        collector.add_files("", -1)
    if not collector.sizes:
        raise SourceError(nothing_left(collector.root, collector.skipped))
    return collector.listing(tuple(labels))


def _check_classes(source: Path, folders: tuple[str, ...], labels: dict[str, int]) -> None:
    unknown = [name for name in folders if name not in labels]
    if unknown:
        raise SourceError(
            f"{source}: folder {unknown[0]!r} is none of the {len(labels)} classes that were given"
            f" ({len(unknown)} such folders); add its name to the list, or move the folder"
        )


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

    def __init__(
        self, root: str, extensions: frozenset[str] | None, fields: tuple[str, ...]
    ) -> None:
        self.root = root
        self.extensions = extensions
        self.names = bytearray()
        self.ends = array("q")
        self.sizes = array("q")
        self.labels = array("i")
        self.numbers: dict[int, int] = {}
        self.fields = {name: array("q") for name in fields}
        self.skipped: list[Skipped] = []

    def listing(self, classes: tuple[str, ...]) -> Listing:
        """What was collected, as arrays."""
        ends = np.array(self.ends, np.int64)
        sizes = np.array(self.sizes, np.int64)
        names = bytes(self.names)
        columns = {name: Beside(np.array(sizes, np.int64)) for name, sizes in self.fields.items()}
        renamed = keys.class_folders(tuple(sorted(classes)))
        return Listing(
            root=self.root,
            classes=classes,
            labels=np.array(self.labels, np.int32),
            sizes=sizes,
            skipped=tuple(dict.fromkeys(self.skipped)),  # a folder may fail twice
            fingerprint=fingerprint(classes, names, ends, sizes, columns=columns),
            _names=names,
            _ends=ends,
            _numbers=self.numbers,
            _renamed={os.fsencode(old): os.fsencode(new) for old, new in renamed.items()},
            _columns=columns,
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
        others = set(filter(self._is_field, names)) if self.fields else set()
        for name in names:
            size = 0 if name in others else self._accept(prefix + name)
            if size:
                accepted.append(name)
                self.names += os.fsencode(prefix + name)
                self.ends.append(len(self.names))
                self.sizes.append(size)
                self.labels.append(label)
        for place, number in keys.clashes(accepted).items():
            self.numbers[start + place] = number
        if self.fields:
            self._add_fields(prefix, accepted, others)

    def _is_field(self, name: str) -> bool:
        return not name.startswith(".") and os.path.splitext(name)[1][1:] in self.fields

    def _add_fields(self, prefix: str, accepted: list[str], others: set[str]) -> None:
        """Add a value to each field's column for every file of a folder that was accepted."""
        sizes = {name: self._field_size(prefix + name) for name in sorted(others)}
        for field, column in self.fields.items():
            for image in accepted:
                column.append(sizes.get(os.fsdecode(beside(os.fsencode(image), field)), -1))
        stems = {os.path.splitext(image)[0] for image in accepted}
        for name, size in sizes.items():
            if size >= 0 and os.path.splitext(name)[0] not in stems:
                self._skip(prefix + name, "field without an image")

    def _field_size(self, name: str) -> int:
        """Size of a file that holds a field; -1 for a folder and for what is skipped."""
        status = examine(self._full(name))
        if isinstance(status, str):
            return self._skip(name, status) - 1
        if stat.S_ISDIR(status.st_mode):
            return -1
        reason = unfit(status)
        return status.st_size if not reason or reason == EMPTY else self._skip(name, reason) - 1

    def _accept(self, name: str) -> int:
        """Size of a file that is listed; 0 for a folder and for what is skipped."""
        last = name.rpartition("/")[2]
        if last.startswith("."):
            return self._skip(name, "hidden")
        status = examine(self._full(name))
        if isinstance(status, str):
            return self._skip(name, status)
        if stat.S_ISDIR(status.st_mode):
            return 0
        reason = unfit(status) or self._other_extension(last)
        return self._skip(name, reason) if reason else status.st_size

    def _other_extension(self, name: str) -> str | None:
        ending = name.rpartition(".")[2].lower() if "." in name else ""
        if self.extensions is None or ending in self.extensions:
            return None
        return f"other extension: {ending or 'none'}"

    def _skip(self, name: str, reason: str) -> int:
        self.skipped.append(Skipped(name, reason))
        return 0

    def _identity(self, folder: str) -> tuple[int, int]:
        status = os.stat(self._full(folder))
        return status.st_dev, status.st_ino

    def _full(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root
