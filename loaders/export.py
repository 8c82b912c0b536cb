"""From a packed data set back to an image folder: ``fastdata export PATH DST``."""

import hashlib
import json
import os
import re
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastdata.batch.source import Ids
from fastdata.converters.sources.listing import class_folders, stem
from fastdata.dataset.catalog.format import ABSENT, FORMAT_MASK
from fastdata.errors import DestinationError, NotADatasetError
from fastdata.images.probe import EXTENSIONS, FORMATS
from fastdata.loaders.readers.packed import PackedSource, open_source
from fastdata.system.files import Folder, Lock, open_own, temporary, write_atomically

MARK_NAME = ".export.json"  # in a folder whose export has begun and not ended
LOCK_NAME = ".export.lock"
_FILE_NAME = ".export.tmp"  # of the file being written: its own name and .tmp could be too long

# Extensions that name a format as well as its own does.
_ENDINGS = {"jpeg": {"jpg", "jpeg", "jpe", "jfif"}, "bmp": {"bmp", "dib"}, "tiff": {"tif", "tiff"}}
_CHUNK = 4096  # samples looked up at once
_MOST_PART = 255  # bytes of a file's name on every common file system
_MOST_PATH = 3072  # bytes of a relative path, which leaves room for the folder's own

# Neither a separator nor a NUL, and no surrogate but those that stand for a byte.
_NEVER = re.compile("[/\0\ud800-\udc7f\udd00-\udfff]")

Progress = Callable[[str, int, int], object]
"""Called with what is being done, samples done and their total."""


@dataclass(frozen=True)
class ExportReport:
    """What an export did.

    Attributes:
        path: The image folder.
        samples: Number of images.
        classes: Number of class folders; 0 for a flat folder.
        fields: Number of files of further fields.
        bytes: Bytes of all files.
        resumed: Files that an interrupted export had already written.
        renamed: How many images have another name than the original file, by reason.
        seconds: Time it took.
    """

    path: Path
    samples: int
    classes: int
    fields: int
    bytes: int
    resumed: int
    renamed: Mapping[str, int]
    seconds: float


def export(
    path: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    progress: Progress | None = None,
) -> ExportReport:
    """Write every sample of a packed data set as a file, in the folders of its classes.

    Images have the bytes that are stored, each checked against its CRC32C, and lie at
    ``CLASS/KEY.EXTENSION``; fields lie beside them. A file keeps its original name where that
    makes the same key. Packing the folder again gives the same keys and labels. Class folders
    without an image are created, too.

    Rerun an interrupted export to resume it.

    Args:
        path: Folder of tar shards, or ``.lmdb`` file.
        dst: A folder, new or empty, or with an unfinished export of this data set.
        progress: Called after each sample.

    Raises:
        NotADatasetError: There is no packed data set at ``path``.
        CorruptError: It is damaged.
        DestinationError: ``dst`` holds something else, lies within the data set, or cannot be
            written; or two samples or classes would have one path.
        BusyError: Another process exports into it.
    """
    started = time.perf_counter()
    source = open_source(path)
    if not isinstance(source, PackedSource):
        raise NotADatasetError(f"{path}: a folder of images; only a packed data set is exported")
    target = Path(os.path.realpath(dst))
    try:
        inside = Path(os.path.realpath(source.path))
        if target == inside or inside in target.parents:
            raise DestinationError(f"{target}: lies within the data set; choose another place")
        with _clear_errors(target):
            _refuse_others(target, source)
            names = _Names(source)
            target.mkdir(parents=True, exist_ok=True)
            with Lock(target / LOCK_NAME, str(target)), Folder(target) as root:
                writer = _Writer(root, resumed=_refuse_others(target, source))
                write_atomically(target / MARK_NAME, _mark(source))
                renamed = _write_all(source, names, writer, progress)
                writer.finish()
    finally:
        source.close()
    return ExportReport(
        path=Path(dst),
        samples=len(source),
        classes=len(source.classes),
        fields=writer.files - len(source),
        bytes=writer.bytes,
        resumed=writer.found,
        renamed=dict(sorted(renamed.items())),
        seconds=time.perf_counter() - started,
    )


def _write_all(
    source: PackedSource, names: "_Names", writer: "_Writer", progress: Progress | None
) -> Counter[str]:
    """Write all samples; return how many have other names, by reason."""
    renamed: Counter[str] = Counter()
    for folder in names.folders:
        with writer.folder(_encode(folder)):
            pass
    for sample in names.samples():
        writer.put(_encode(sample.image), source.read(sample.id))
        fields = source.read_fields(sample.id) if sample.fields else {}
        for field, path in sample.fields.items():
            writer.put(_encode(path), fields[field])
        if sample.image != sample.original:
            stem, original = os.path.splitext(sample.image)[0], os.path.splitext(sample.original)[0]
            renamed["extension of the stored format" if stem == original else "key or class"] += 1
        if progress is not None:
            progress("exporting", sample.id + 1, len(source))
    return renamed


class _Sample(NamedTuple):
    """A sample and the relative paths of its files, those of fields by name."""

    id: int
    key: str
    original: str
    image: str
    fields: dict[str, str]


class _Names:
    """Relative paths of all files of an export: CLASS/KEY.EXTENSION.

    Keys are unique and have no dot in the last part, so the paths are unique too, and a pack makes
    the same keys of them.

    - The folder of the class is not repeated where all keys begin with it, as those of a packed
      folder do. Classes without names, or called 0, 1, 2 and so on, have numbers of equal length.
    - The stem of the original file name is kept where a pack makes the key of it ("a.b" for "a_b"),
      and its extension where it names the stored format.
    - Names in a data set may come from anywhere, and none may lead out of the folder: a leading
      dot, and what no file name can hold, becomes "%" and its code; empty parts and "." are left
      out; what is too long is cut and gets a hash.
    """

    def __init__(self, source: PackedSource) -> None:
        """Look through the catalog for paths that two samples would share; see :func:`export`."""
        self._catalog = source.catalog
        self._labels = labels = source.labels()
        classes = source.classes
        self._digits = len(str(max(labels.max(initial=0), len(classes) - 1)))
        self.folders = [_part(name) for name in classes]  # by label
        if classes == tuple(map(str, range(len(classes)))):
            self.folders = [self._number(label) for label in range(len(classes))]
        for folder, number in Counter(self.folders).items():
            if number > 1:
                first, second, *_ = (name for name in classes if _part(name) == folder)
                raise DestinationError(
                    f"classes {first!r} and {second!r} would have one folder, {folder!r}; pack "
                    "again with other names of classes"
                )
        shortened = class_folders(classes)
        self._in_keys = [shortened.get(name, name) for name in classes]
        longest = max(len(_encode(name)) for name in ("jpeg", *self._catalog.field_names))
        self._room = max(32, _MOST_PART - 1 - longest)
        self._repeated = all(
            key.startswith(f"{self._class(label)[1]}/")
            for ids in _chunks(len(labels))
            for key, label in zip(self._catalog.keys(ids), labels[ids].tolist(), strict=True)
            if self._class(label)[1]
        )
        self._refuse_clashes()

    def _class(self, label: int) -> tuple[str, str]:
        """Folder of a class, and how keys call it; empty for no label."""
        if 0 <= label < len(self.folders):
            return self.folders[label], self._in_keys[label]
        if label < 0 or self.folders:
            return "", ""
        return self._number(label), self._number(label)

    def _number(self, label: int) -> str:
        """A label with as many digits as the others: folders are sorted as text."""
        return f"{label:0{self._digits}}"

    def samples(self) -> Iterator[_Sample]:
        """The samples in the order of their ids."""
        for ids in _chunks(len(self._labels)):
            codes = (self._catalog.rows(ids)["flags"] & FORMAT_MASK).tolist()
            offsets = {
                name: self._catalog.field(name, ids)["offset"] for name in self._catalog.field_names
            }
            texts = zip(self._catalog.keys(ids), self._catalog.names(ids), strict=True)
            for place, (key, original) in enumerate(texts):
                sample = int(ids[place])
                fields = [name for name, column in offsets.items() if column[place] != ABSENT]
                image, *further = self._paths(sample, key, original, codes[place], fields)
                yield _Sample(sample, key, original, image, dict(zip(fields, further, strict=True)))

    def _paths(
        self, sample: int, key: str, original: str, code: int, fields: list[str]
    ) -> list[str]:
        """Paths of the image and of the fields."""
        above, _, last = key.rpartition("/")
        folder, in_keys = self._class(int(self._labels[sample]))
        if folder and self._repeated:
            above = above[len(in_keys) + 1 :]
        parts = [folder, *(_part(part) for part in above.split("/") if part not in ("", "."))]
        called = original.rpartition("/")[2]
        shown, ending = os.path.splitext(called)
        format = FORMATS[code] if code < len(FORMATS) else FORMATS[0]
        own = EXTENSIONS.get(format)
        if own is not None and ending[1:].lower() not in _ENDINGS.get(format, {own}):
            ending = f".{own}"
        shown = _cut(_escaped(shown if stem(called) == last else last), self._room)
        names = [_escaped(shown + ending), *(_escaped(f"{shown}.{field}") for field in fields)]
        paths = ["/".join(filter(None, [*parts, name])) for name in names]
        if len(_encode(paths[0])) > _MOST_PATH:
            raise DestinationError(f"sample {key[:80]!r}...: a path of over {_MOST_PATH} bytes")
        return paths

    def _refuse_clashes(self) -> None:
        # Hashes first: all paths of ten million samples would take gigabytes.
        folders = {hash(folder) for folder in self.folders}
        files = array("q")
        for sample in self.samples():
            folders.update(map(hash, _above(sample.image)))
            files.extend(map(hash, (sample.image, *sample.fields.values())))
        ordered = np.sort(np.frombuffer(files, np.int64))
        suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        suspects |= folders.intersection(ordered.tolist())
        if not suspects:
            return
        owners = {folder: f"class {folder!r}" for folder in self.folders}
        for sample in self.samples():
            owners.update(dict.fromkeys(_above(sample.image), f"the folder of {sample.key!r}"))
        for sample in self.samples():
            for path in (sample.image, *sample.fields.values()):
                if hash(path) in suspects:
                    if path in owners:
                        raise DestinationError(
                            f"{path}: sample {sample.key!r} and {owners[path]} would have this "
                            "path; rename one in the source and pack again"
                        )
                    owners[path] = f"sample {sample.key!r}"


def _chunks(samples: int) -> Iterator[Ids]:
    """The ids from 0 on, some thousands at a time."""
    for start in range(0, samples, _CHUNK):
        yield np.arange(start, min(start + _CHUNK, samples), dtype=np.int64)


def _encode(name: str) -> bytes:
    """A relative path as the bytes that the catalog holds, whatever the locale."""
    return name.encode("utf-8", "surrogateescape")


def _part(name: str) -> str:
    return _cut(_escaped(name), _MOST_PART)


def _escaped(name: str) -> str:
    """A name that leads nowhere, is not hidden, and is never empty."""
    name = _NEVER.sub(lambda found: f"%{ord(found[0]):02X}", name)
    return f"%2E{name[1:]}" if name.startswith(".") else name or "%"


def _cut(name: str, room: int) -> str:
    """A name of at most so many bytes; the hash keeps it unlike others that begin alike."""
    whole = _encode(name)
    if len(whole) <= room:
        return name
    mark = hashlib.sha256(whole).hexdigest()[:16]
    return f"{whole[: room - 17].decode('utf-8', 'ignore')}-{mark}"


def _above(path: str) -> Iterator[str]:
    """The folders that a path leads through."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class _Writer:
    """Writes files below a folder; a file gets its name once it is whole.

    Folders are opened one within the other: a link in the place of one is an error.
    """

    def __init__(self, root: Folder, *, resumed: bool) -> None:
        self.files = self.bytes = 0
        self.found = 0  # files that were there already
        self._root = root
        self._resumed = resumed

    @contextmanager
    def folder(self, name: bytes) -> Iterator[Folder]:
        """Open a folder; it and those above it are created if missing."""
        with ExitStack() as stack:
            folder = self._root
            for part in filter(None, name.split(b"/")):
                folder = stack.enter_context(folder.subfolder(part))
            yield folder

    def put(self, path: bytes, data: bytes) -> None:
        """Write a file unless it is there with this content."""
        self.files += 1
        self.bytes += len(data)
        above, _, name = path.rpartition(b"/")
        with self.folder(above) as folder:
            if self._resumed and _holds(folder, name, data):
                self.found += 1
                return
            self._root.write(_FILE_NAME, data)
            self._root.rename(_FILE_NAME, name, folder)

    def finish(self) -> None:
        """Sync everything to the disk, then remove the mark of an unfinished export."""
        # Once for all files: syncing each would take most of the time. A power cut before this
        # leaves the mark, and the next run compares what is there.
        os.sync()
        self._root.remove(MARK_NAME)


def _holds(folder: Folder, name: bytes, data: bytes) -> bool:
    """Whether a regular file has exactly this content."""
    try:
        with os.fdopen(folder.open_own(name, os.O_RDONLY), "rb") as file:
            return file.read(len(data) + 1) == data
    except (FileNotFoundError, DestinationError):
        return False


def _refuse_others(target: Path, source: PackedSource) -> bool:
    """Refuse other content; return whether there is an unfinished export of this data set."""
    try:
        names = set(os.listdir(target)) - {LOCK_NAME, temporary(Path(MARK_NAME)).name}
    except FileNotFoundError:
        return False
    if not names:
        return False
    if MARK_NAME not in names:
        raise DestinationError(f"{target}: is not empty; choose another folder, or empty this one")
    with os.fdopen(open_own(target / MARK_NAME), "rb") as file:
        mark = file.read()
    if mark != _mark(source):
        raise DestinationError(
            f"{target}: holds an unfinished export of another data set; choose another folder, or "
            "remove this one"
        )
    return True


def _mark(source: PackedSource) -> bytes:
    """What identifies an export of this data set; the catalog's digest stands for the names."""
    facts = {"catalog": source.manifest.catalog.digest, "fingerprint": source.fingerprint}
    return (json.dumps({"export": facts}, indent=2, sort_keys=True) + "\n").encode("ascii")


@contextmanager
def _clear_errors(target: Path) -> Iterator[None]:
    """Turn an OSError of the destination into one clear error."""
    try:
        yield
    except OSError as error:
        name = error.filename2 or error.filename or target
        with suppress(OSError):
            (target / _FILE_NAME).unlink(missing_ok=True)
        raise DestinationError(
            f"{os.fsdecode(name)}: {error.strerror or error}; fix this, and run the same export "
            "again to resume it"
        ) from error
