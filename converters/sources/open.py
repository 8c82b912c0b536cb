"""Lists a source: a folder of images here, anything else by the module of its kind."""

import os
import stat
import tempfile
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import check_columns
from fastdata.converters.sources.detect import find
from fastdata.converters.sources.fields import Beside, beside, check_field_name
from fastdata.converters.sources.file_list import list_from, read_classes
from fastdata.converters.sources.formats.arrow import list_arrow
from fastdata.converters.sources.formats.hdf5 import list_hdf5
from fastdata.converters.sources.formats.lmdb import list_lmdb
from fastdata.converters.sources.formats.mds import list_mds
from fastdata.converters.sources.formats.packed import list_packed
from fastdata.converters.sources.formats.tar import list_tars
from fastdata.converters.sources.formats.tfrecord import list_tfrecord
from fastdata.converters.sources.iterable import Samples, list_samples
from fastdata.converters.sources.listing import (
    EMPTY,
    Listing,
    Unreadable,
    clashes,
    class_folders,
    examine,
    fingerprint,
    nothing_left,
    read_failure,
    unfit,
)
from fastdata.converters.sources.subset import limited, without_duplicates
from fastdata.dataset.manifest import MARK_NAME, Skipped
from fastdata.errors import OptionError, SourceError

StrPath = str | os.PathLike[str]
AnySource = StrPath | Samples

_LISTERS = {
    "packed": list_packed,
    "webdataset": list_tars,
    "lmdb": list_lmdb,
    "tfrecord": list_tfrecord,
    "mds": list_mds,
}
_SPOOLERS = {"parquet": list_arrow, "arrow": list_arrow, "hdf5": list_hdf5}


@dataclass(frozen=True)
class Selection:
    """What to pack of a source; see :func:`fastdata.converters.pack.pack`.

    Attributes:
        kind: Source format, if it cannot be detected.
        columns: Columns that hold the ``"image"``, the ``"label"`` and the ``"key"``.
        manifest: List of the files to pack.
        fields: Names of the fields to store with each image.
        classes: File of class names.
        dedupe: Whether to skip files whose bytes equal an earlier file's.
        limit: Number of files at most.

    Raises:
        OptionError: A column is for none of these purposes.
    """

    kind: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    manifest: StrPath | None = None
    fields: tuple[str, ...] = ()
    classes: StrPath | None = None
    dedupe: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.columns:
            check_columns(self.columns)


def list_source(
    source: AnySource, selection: Selection, workers: int = 1, destination: Path | None = None
) -> Listing:
    """List the images of a source.

    Args:
        source: A path or a pattern of :func:`fastdata.converters.sources.detect.find`, or what
            :func:`fastdata.converters.sources.iterable.list_samples` takes.
        selection: What to pack of it.
        workers: Number of threads that compare files.
        destination: Where the images will be packed; those of a source that can be read only once
            are kept beside it until then, or in the system's temporary folder.

    Raises:
        OptionError: Parts of the selection contradict each other, or are out of range.
        SourceError: The source, the list or the classes cannot be used.
        CorruptError: A file of the source is damaged.
        MissingExtraError: The source needs a package that is not installed.
        DestinationError: There is no room for a copy of a source that can be read only once.
    """
    names = None if selection.classes is None else read_classes(Path(selection.classes))
    wanted = Wanted(selection.columns, selection.fields, names)
    # Beside the destination, where there must be room for about as much anyway.
    spool = Path(tempfile.gettempdir())
    if destination is not None:
        spool = Path(os.path.realpath(destination)).parent
    if isinstance(source, str | os.PathLike):
        listing = _list_path(Path(source), selection, wanted, spool)
    elif selection.kind is not None or selection.manifest is not None:
        raise OptionError("a kind or a list of files needs a path as the source, found samples")
    else:
        listing = list_samples(source, wanted, spool)
    if selection.dedupe:
        listing = without_duplicates(listing, workers)
    return listing if selection.limit is None else limited(listing, selection.limit)


def _list_path(path: Path, selection: Selection, wanted: Wanted, spool: Path) -> Listing:
    kind = selection.kind
    if selection.manifest is not None:
        if wanted.columns or kind not in (None, "folder"):
            raise OptionError("a list names files of a folder; give neither columns nor a kind")
        if wanted.fields:
            raise OptionError(
                "with a list, fields must be columns of it, found fields beside images"
            )
        return list_from(Path(selection.manifest), path, wanted.classes)
    # Detection reads the files at the top; a folder of class folders has none.
    if kind in (None, "folder") and _has_folders_alone(path):
        return _list_folder(path, wanted)
    found = find(path, kind)
    if found.kind == "folder":
        return _list_folder(path, wanted)
    root, inputs, paths = os.fspath(path), found.inputs, found.paths
    if found.kind in _LISTERS:
        listing = _LISTERS[found.kind](root, inputs, paths, wanted)
    else:
        listing = _SPOOLERS[found.kind](root, inputs, paths, wanted, spool)
    others = (Skipped(name, f"not a file of {found.kind}") for name in found.others)
    return replace(listing, skipped=(*listing.skipped, *others))


def _list_folder(path: Path, wanted: Wanted) -> Listing:
    if wanted.columns:
        raise OptionError(f"{path}: a folder of images has no columns")
    return scan(path, fields=wanted.fields, classes=wanted.classes)


def _has_folders_alone(path: Path) -> bool:
    """Whether this is a folder without files, which can only be one of images."""
    try:
        with os.scandir(path) as entries:
            return all(_is_folder(e) or (e.name[0] == "." and e.name != MARK_NAME) for e in entries)
    except OSError:
        return False


def scan(
    source: Path,
    extensions: frozenset[str] | None = None,
    *,
    fields: tuple[str, ...] = (),
    classes: tuple[str, ...] | None = None,
) -> Listing:
    """List every file that may be an image.

    A folder with sub-folders is one of classes: the names of its sub-folders, sorted, are the
    classes, and deeper folders belong to them. A sub-folder without an image is a class too, so
    that labels agree between parts of a data set. A folder without sub-folders is flat.

    Symbolic links are followed, but not into a folder that holds them. Left out are names that
    start with a dot, files beside class folders, empty files, and anything but regular files, which
    is never opened.

    Args:
        source: The folder.
        extensions: Extensions, without the dot and in lower case, that files must have. None lists
            every file, for a reader that tells images by their content.
        fields: Extensions of files that are fields of the image with the same stem.
        classes: Names of the classes in label order; None takes the sorted folder names.

    Raises:
        OptionError: A field has a name that none can have.
        SourceError: The source cannot be read, holds no image, or has a folder that is none of
            ``classes``.
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
        raise SourceError(f"{source}: has no class folders, although class names were given")
    else:
        collector.add_files("", -1)
    if not collector.sizes:
        raise SourceError(nothing_left(collector.root, collector.skipped))
    return collector.listing(tuple(labels))


def _check_classes(source: Path, folders: tuple[str, ...], labels: dict[str, int]) -> None:
    unknown = [name for name in folders if name not in labels]
    if unknown:
        raise SourceError(
            f"{source}: folder {unknown[0]!r} is not among the {len(labels)} given classes"
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


class _Collector:
    """Collects files for a listing."""

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
        """The listing of all files."""
        ends = np.array(self.ends, np.int64)
        sizes = np.array(self.sizes, np.int64)
        names = bytes(self.names)
        columns = {name: Beside(np.array(sizes, np.int64)) for name, sizes in self.fields.items()}
        renamed = class_folders(tuple(sorted(classes)))
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
        """Leave out what is beside the class folders."""
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
                # By device and inode, as a link may reach a folder above by any name.
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
            size = None if name in others else self._accept(prefix + name)
            if size is not None:
                accepted.append(name)
                self.names += os.fsencode(prefix + name)
                self.ends.append(len(self.names))
                self.sizes.append(size)
                self.labels.append(label)
        for place, number in clashes(accepted).items():
            self.numbers[start + place] = number
        if self.fields:
            self._add_fields(prefix, accepted, others)

    def _is_field(self, name: str) -> bool:
        return not name.startswith(".") and os.path.splitext(name)[1][1:] in self.fields

    def _add_fields(self, prefix: str, accepted: list[str], others: set[str]) -> None:
        """Add a value to each field's column for every file of a folder that was accepted."""
        sizes = {name: self._field_size(prefix + name) for name in sorted(others)}
        for name, column in self.fields.items():
            for image in accepted:
                column.append(sizes.get(os.fsdecode(beside(os.fsencode(image), name)), -1))
        stems = {os.path.splitext(image)[0] for image in accepted}
        for name, size in sizes.items():
            if size >= 0 and os.path.splitext(name)[0] not in stems:
                self._skip(prefix + name, "field without an image")

    def _field_size(self, name: str) -> int:
        """Size of a file that holds a field; -1 for a folder and for what is skipped."""
        size = self._size(name)
        return -1 if size is None else size

    def _accept(self, name: str) -> int | None:
        """Size of a file that is listed; None for a folder and for what is skipped."""
        last = name.rpartition("/")[2]
        if last.startswith("."):
            self._skip(name, "hidden")
            return None
        size = self._size(name)
        if size is None:
            return None
        reason = EMPTY if size == 0 else self._other_extension(last)
        if reason:
            self._skip(name, reason)
            return None
        return size

    def _size(self, name: str) -> int | None:
        """Size of a file, which may be empty; None for a folder and for what is skipped."""
        status = examine(self._full(name))
        if isinstance(status, Unreadable):
            self._skip(name, status.reason)
            return None
        if stat.S_ISDIR(status.st_mode):
            return None
        reason = unfit(status)
        if reason and reason != EMPTY:
            self._skip(name, reason)
            return None
        return status.st_size

    def _other_extension(self, name: str) -> str | None:
        ending = name.rpartition(".")[2].lower() if "." in name else ""
        if self.extensions is None or ending in self.extensions:
            return None
        return f"other extension: {ending or 'none'}"

    def _skip(self, name: str, reason: str) -> None:
        self.skipped.append(Skipped(name, reason))

    def _identity(self, folder: str) -> tuple[int, int]:
        status = os.stat(self._full(folder))
        return status.st_dev, status.st_ino

    def _full(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root
