"""Makes a data set of existing tars: ``fastdata index PATH``."""

import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Self, TypeVar

from fastdata.converters.check.samples import read_tar, survey
from fastdata.converters.check.verify import verify_folder
from fastdata.converters.journal import encode_report
from fastdata.converters.problems import Progress
from fastdata.converters.tar.packed_folder import has_catalog, has_manifest, is_dataset
from fastdata.converters.tar.webdataset import CLASSES
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    LOCK_NAME,
    MARK_NAME,
    REPORT_NAME,
    Manifest,
    Shard,
    Skipped,
    Stored,
    count_reasons,
    digest_text,
    fingerprint,
)
from fastdata.errors import (
    DestinationError,
    NotADatasetError,
    OptionError,
    ShardError,
)
from fastdata.system.files import TMP_SUFFIX, Folder, Lock, write_temporary
from fastdata.system.resources import cpu_count
from fastdata.system.threads import Threads
from fastdata.system.untrusted import read_regular

NO_LABEL = f".cls holds no number below {CLASSES}"

_MOST_FIELDS = 64
_T = TypeVar("_T")


@dataclass(frozen=True)
class IndexReport:
    """What ``index`` found.

    Attributes:
        path: The folder.
        samples: Number of samples.
        classes: Names of the classes.
        fields: Names of further fields.
        shards: Number of tars.
        bytes: Their total size.
        skipped: Samples that were skipped, and why.
        seconds: Time it took.
    """

    path: Path
    samples: int
    classes: tuple[str, ...]
    fields: tuple[str, ...]
    shards: int
    bytes: int
    skipped: tuple[Skipped, ...]
    seconds: float


def index(
    path: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None
) -> IndexReport:
    """Write a catalog, a manifest and index files for the tars of a folder, which do not change.

    Shards of ``pack`` get the fingerprint that they had, provided that every class has an image and
    every field a sample. In other tars, samples are grouped as WebDataset does it; the image is the
    first member that is one by its content, the label is the number in ``.cls``, and all other
    members are fields. Samples without a usable image are skipped and listed in skipped.jsonl.

    Args:
        path: The folder.
        overwrite: Replaces a data set that is whole, and files of other programs, and indexes
            shards that their catalog says are damaged.
        progress: Called on this thread after each tar.

    Raises:
        NotADatasetError: There is no tar.
        OptionError: ``path`` is a file; an LMDB needs no index.
        DestinationError: There is an unfinished pack; or, without ``overwrite``, a whole data set
            or another program's file with one of our names; or the folder cannot be written.
        BusyError: Another process writes to it.
        ShardError: A tar is damaged, or holds other things than regular files.
    """
    started = time.perf_counter()
    folder = Path(path)
    if folder.is_file():
        raise OptionError(
            f"{folder}: a file; give the folder of the tars (an LMDB file holds its index: if that "
            "is damaged, pack again)"
        )
    tars = sorted(folder.glob("*.tar")) if folder.is_dir() else []
    if not tars:
        raise NotADatasetError(f"{folder}: not a folder with tars (*.tar)")
    try:
        with (
            Lock(folder / LOCK_NAME, str(folder)),
            _Files(folder, overwrite=overwrite) as files,
        ):
            if not overwrite:
                _refuse_replacing(folder)
            return _Indexer(folder, files, tars, progress).run(started)
    except OSError as error:
        raise DestinationError(f"{error.filename or folder}: {error.strerror or error}") from error


def _source_of(shards: list[Shard]) -> str:
    """A fingerprint in place of the source's, which is not known: of the tars themselves."""
    names = json.dumps([(shard.name, shard.digest) for shard in shards])
    return digest_text(names.encode("ascii"))


def _refuse_replacing(folder: Path) -> None:
    if os.path.lexists(folder / MARK_NAME):
        raise DestinationError(f"{folder}: an unfinished pack; run the same fastdata pack again")
    if not is_dataset(folder):
        return
    problems = verify_folder(folder, None).problems
    damaged = [problem for problem in problems if problem.file.endswith(".tar")]
    if damaged:
        raise ShardError(
            f"{folder}: {damaged[0].file}: {damaged[0].text}; repair it or pack again, or index it "
            "as it is with --overwrite"
        )
    if not any(problem.file in (FILE_NAME, CATALOG_NAME) for problem in problems):
        raise DestinationError(f"{folder}: holds a data set already; use --overwrite to replace it")


class _Files:
    """New files of a folder, which have temporary names until ``publish``.

    So an error leaves the old data set as it was.
    """

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path = path
        self._overwrite = overwrite
        # A manifest that a power cut emptied lies beside a catalog that is still known.
        self._ours = has_manifest(path) or has_catalog(path)
        self._staged: list[str] = []

    def __enter__(self) -> Self:
        for name in (FILE_NAME, CATALOG_NAME, REPORT_NAME):
            self._refuse(name, ours=self._ours)
        self._folder = Folder(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for name in self._staged:
                self._folder.remove(name + TMP_SUFFIX)
        finally:
            self._folder.close()

    def write_index(self, name: str, lines: bytes) -> None:
        """Write the index file of a tar, unless it is there already."""
        with suppress(OSError):
            if read_regular(self._path / name) == lines:
                return
        self._refuse(name, ours=self._ours)
        self.write(name, lines)

    def write(self, name: str, data: bytes | Callable[[BinaryIO], object]) -> None:
        write_temporary(self._folder, name, data)
        self._staged.append(name)

    def publish(self) -> None:
        """Replace the old files: the manifest goes first, and the new one comes last."""
        self._folder.remove(FILE_NAME)
        if self._ours and REPORT_NAME not in self._staged:
            self._folder.remove(REPORT_NAME)
        self._folder.sync()
        while self._staged:
            if self._staged[0] == FILE_NAME:
                self._folder.sync()
            self._folder.rename(self._staged[0] + TMP_SUFFIX, self._staged[0])
            del self._staged[0]
        self._folder.sync()

    def _refuse(self, name: str, *, ours: bool) -> None:
        path = self._path / name
        if not os.path.lexists(path):
            return
        if stat.S_ISDIR(path.lstat().st_mode):
            raise DestinationError(f"{path}: a folder in place of a file; move it away")
        if not ours and not self._overwrite:
            raise DestinationError(
                f"{path}: not written by fastdata; move it away, or use --overwrite to replace it"
            )


class _Classes:
    """Names of classes: the first folders of keys, if each label has its own; else numbers."""

    def __init__(self) -> None:
        self._folders: dict[int, bytes] = {}
        self._agree = True

    def add(self, key: bytes, label: int) -> None:
        if label < 0:
            return
        folder = key.partition(b"/")[0] if b"/" in key else b""
        self._agree &= self._folders.setdefault(label, folder) == folder != b""

    def names(self) -> tuple[str, ...]:
        agree = self._agree and len(set(self._folders.values())) == len(self._folders)
        labels = range(max(self._folders, default=-1) + 1)
        known = self._folders if agree else {}
        return tuple(os.fsdecode(known.get(label, b"%d" % label)) for label in labels)


class _Indexer:
    def __init__(
        self, folder: Path, files: _Files, paths: list[Path], progress: Progress | None
    ) -> None:
        self._folder = folder
        self._files = files
        self._paths = paths
        self._progress = progress
        self._fields: tuple[str, ...] = ()

    def run(self, started: float) -> IndexReport:
        # A catalog states all fields before its first row: hence two passes over the headers.
        fields: set[str] = set()
        for found in self._each(survey):
            fields |= found
            if len(fields) > _MOST_FIELDS:
                raise ShardError(
                    f"{self._folder}: members of more than {_MOST_FIELDS} extensions, such as "
                    f"{sorted(fields)[:3]}; names of samples must have no dot but the one before "
                    "the extension"
                )
        self._fields = tuple(sorted(fields))
        catalog = CatalogBuilder(self._fields)
        classes = _Classes()
        shards: list[Shard] = []
        skipped: list[Skipped] = []
        noted: Counter[str] = Counter()
        ends = list(accumulate(path.stat().st_size for path in self._paths))
        for number, indexed in enumerate(self._each(lambda path: read_tar(path, self._fields))):
            for row in indexed.rows:
                classes.add(row.key, row.label)
                try:
                    catalog.append(row._replace(shard=number))
                except ValueError as error:
                    raise ShardError(f"{self._paths[number]}: {error}") from None
            self._files.write_index(self._paths[number].with_suffix(".idx").name, indexed.lines)
            shards.append(indexed.shard)
            skipped += indexed.skipped
            noted[NO_LABEL] += indexed.unlabelled
            if self._progress is not None:
                self._progress("index", ends[number], ends[-1])
        if not len(catalog):
            raise NotADatasetError(f"{self._folder}: no tar holds a sample with a usable image")
        manifest = self._manifest(catalog, classes, shards, skipped, noted)
        self._files.write(FILE_NAME, manifest.encode())
        self._files.publish()
        return IndexReport(
            path=self._folder,
            samples=len(catalog),
            classes=manifest.classes,
            fields=self._fields,
            shards=len(shards),
            bytes=sum(shard.bytes for shard in shards),
            skipped=tuple(sorted(skipped)),
            seconds=time.perf_counter() - started,
        )

    def _manifest(
        self,
        catalog: CatalogBuilder,
        classes: _Classes,
        shards: list[Shard],
        skipped: list[Skipped],
        noted: Counter[str],
    ) -> Manifest:
        report = None
        if skipped:
            text = encode_report(skipped)
            self._files.write(REPORT_NAME, text)
            report = Stored(len(text), digest_text(text))
        stored: list[Stored] = []
        write = lambda file: stored.append(Stored(*catalog.write_into(file)))  # noqa: E731
        self._files.write(CATALOG_NAME, write)
        names = classes.names()
        return Manifest(
            kind="tar",
            samples=len(catalog),
            classes=names,
            class_counts=catalog.label_counts(len(names)),
            fields=self._fields,
            options={"indexed": True},
            source=_source_of(shards),
            skipped=count_reasons(skipped),
            report=report,
            kept={},
            noted={reason: count for reason, count in noted.items() if count},
            shards=tuple(shards),
            catalog=stored[0],
            fingerprint=fingerprint(names, self._fields, tuple(shards), catalog.labels_digest()),
        )

    def _each(self, work: Callable[[Path], _T]) -> Iterator[_T]:
        """Yield the results for all tars in order; several threads work on them."""
        pool = Threads(cpu_count(), "fastdata-index")
        try:
            yield from pool.map(work, self._paths)
        finally:
            pool.shutdown(cancel_futures=True)
