"""From a packed data set back to an image folder: ``fastdata export PATH DST``."""

import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fastdata.errors import DestinationError, NotADatasetError
from fastdata.files import Lock, temporary, write_atomically
from fastdata.loaders.export_names import ExportNames, chunks, encode
from fastdata.loaders.open_source import open_source
from fastdata.loaders.packed import PackedSource

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
    names where those are safe (:class:`~fastdata.loaders.export_names.ExportNames` says what comes
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
            with Lock(target / LOCK_NAME, str(target)):
                writer = _Writer(target, resumed=_refuse_others(target, source))
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
        writer.make_folder(encode(folder))
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

    Attributes:
        files: Number of files, those of the classes' folders not counted.
        bytes: Their sizes together.
        found: How many of them were there already.
    """

    def __init__(self, root: Path, *, resumed: bool) -> None:
        self.files = self.bytes = self.found = 0
        self._root = os.fsencode(root)
        self._resumed = resumed
        self._unfinished = root / _FILE_NAME
        self._mark = root / MARK_NAME
        self._folders = {b""}

    def make_folder(self, name: bytes) -> None:
        """Make a folder and those above it."""
        if name not in self._folders:
            os.makedirs(os.path.join(self._root, name), exist_ok=True)
            self._folders.add(name)

    def put(self, name: bytes, data: bytes) -> None:
        """Write a file, unless it is there as it should be."""
        path = os.path.join(self._root, name)
        self.files += 1
        self.bytes += len(data)
        if self._resumed and _holds(path, data):
            self.found += 1
            return
        self.make_folder(name.rpartition(b"/")[0])
        self._unfinished.write_bytes(data)
        os.replace(self._unfinished, path)

    def finish(self) -> None:
        """Put everything on the disk itself, then take the mark of the unfinished away."""
        # Once for all files: syncing each would take most of the time. A power cut before this
        # leaves the mark, and running the export again compares what is there.
        os.sync()
        self._mark.unlink()


def _holds(path: bytes, data: bytes) -> bool:
    """Whether a regular file has exactly this content."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(data):
            return False
        with open(path, "rb") as file:
            return file.read() == data
    except FileNotFoundError:
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
    if (target / MARK_NAME).read_bytes() != _mark(source):
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
