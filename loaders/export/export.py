"""From a packed data set back to an image folder: ``fastdata export PATH DST``."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fastdata.errors import DestinationError, NotADatasetError
from fastdata.loaders.export.names import ExportNames, chunks, encode
from fastdata.loaders.readers.open_source import open_source
from fastdata.loaders.readers.packed import PackedSource
from fastdata.system.files import Folder, Lock, open_own, temporary, write_atomically

MARK_NAME = ".export.json"  # in a folder whose export has begun and not ended
LOCK_NAME = ".export.lock"
_FILE_NAME = ".export.tmp"  # what is being written; a name of its own could be too long

Progress = Callable[[str, int, int], object]
"""Called with what is being done, samples done and samples in all."""


@dataclass(frozen=True)
class ExportReport:
    """What an export did.

    Attributes:
        path: The image folder.
        samples: Number of images.
        classes: Number of class folders; 0 for a flat folder.
        fields: Number of files of further fields.
        bytes: Bytes of all files.
        resumed: Files that an interrupted export had left whole.
        renamed: How many images could not have their original name, by reason.
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

    Images have the bytes that are stored, each checked against its CRC32C, and their original
    names where those are safe (:class:`~fastdata.loaders.export.names.ExportNames` says what comes
    in their place); further fields lie beside them. Class folders without an image are made, too.
    Packing the folder again gives the same keys and labels.

    An export that was interrupted goes on where it stopped when it is run again.

    Args:
        path: Folder of tar shards, or ``.lmdb`` file.
        dst: A folder, new or empty, or with an unfinished export of this data set.
        progress: Called after each sample.

    Raises:
        NotADatasetError: There is no packed data set at ``path``.
        CorruptError: It is damaged.
        DestinationError: ``dst`` holds something else, lies within the data set, or cannot be
            written.
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
            target.mkdir(parents=True, exist_ok=True)
            with Lock(target / LOCK_NAME, str(target)), Folder(target) as root:
                writer = _Writer(root, resumed=_refuse_others(target, source))
                write_atomically(target / MARK_NAME, _mark(source))
                renamed = _write_all(source, writer, progress)
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


def _write_all(source: PackedSource, writer: "_Writer", progress: Progress | None) -> Counter[str]:
    """Write all samples; return why how many have other names."""
    renamed: Counter[str] = Counter()
    names = ExportNames(source)
    for folder in names.folders:
        with writer.folder(encode(folder)):
            pass
    for ids in chunks(len(source)):
        originals, images = source.catalog.names(ids), names.images(ids)
        for sample, original, image in zip(ids.tolist(), originals, images, strict=True):
            writer.put(encode(image), source.read(sample))
            for field, data in source.read_fields(sample).items():
                writer.put(encode(names.field(sample, image, field)), data)
            if why := names.why(sample, original, image):
                renamed[why] += 1
            if progress is not None:
                progress("exporting", sample + 1, len(source))
    return renamed


class _Writer:
    """Writes files below a folder, each under its name only once it is whole.

    Folders of classes are opened one within the other: a link in the place of one is an error.

    Attributes:
        files: Number of files, those of the classes' folders not counted.
        bytes: Their sizes together.
        found: How many of them were there already.
    """

    def __init__(self, root: Folder, *, resumed: bool) -> None:
        self.files = self.bytes = self.found = 0
        self._root = root
        self._resumed = resumed

    @contextmanager
    def folder(self, name: bytes) -> Iterator[Folder]:
        """Open a folder; it and those above it are made where they are missing."""
        with ExitStack() as stack:
            folder = self._root
            for part in filter(None, name.split(b"/")):
                folder = stack.enter_context(folder.subfolder(part))
            yield folder

    def put(self, path: bytes, data: bytes) -> None:
        """Write a file, unless it is there as it should be."""
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
        """Put everything on the disk itself, then take the mark of the unfinished away."""
        # Once for all files: syncing each would take most of the time. A power cut before this
        # leaves the mark, and running the export again compares what is there.
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
    """Refuse a folder with anything else in it; return whether an export of this one began."""
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
    """What tells an export of this data set; the catalog's digest stands for the names."""
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
            f"{os.fsdecode(name)}: {error.strerror or error}; mend this, and run the same export "
            "again: it goes on from here"
        ) from error
