"""Whether a packed data set is what was packed, to the bit: ``fastdata verify PATH``."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fastdata.converters.check.locate import locate, structure
from fastdata.converters.check.verify_lmdb import verify_lmdb
from fastdata.converters.problems import (
    Found,
    Problem,
    Progress,
    VerifyReport,
    check_stored,
    failure,
)
from fastdata.converters.tar.layout import entries, index_of
from fastdata.converters.tar.packed_folder import (
    LEFTOVER,
    SHARD_NAME,
    Part,
    is_dataset,
    open_catalog,
    open_manifest,
    parts_of,
)
from fastdata.dataset import manifest
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    LOCK_NAME,
    MARK_NAME,
    REPORT_NAME,
    digest_text,
)
from fastdata.errors import CatalogError, CorruptError, NotADatasetError, ShardError
from fastdata.system.resources import cpu_count
from fastdata.system.threads import Threads
from fastdata.system.untrusted import open_regular

__all__ = ["Problem", "Progress", "VerifyReport", "verify", "verify_folder"]

_THREADS = 4  # SHA-256 in four threads is as fast as disks are
_ADVICE = "`fastdata index` makes a new manifest and catalog for the tars; or pack again"


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> VerifyReport:
    """Read every byte of a packed data set and report all that is wrong with it.

    Shards, index files, catalog, manifest and the list of skipped files are checked; files that do
    not belong to the data set are reported too. Where a shard is damaged, the affected samples are
    named.

    Args:
        path: A folder of shards, or an LMDB file.
        progress: Called on this thread after each shard.

    Raises:
        NotADatasetError: The path never was a packed data set.
    """
    started = time.perf_counter()
    where = Path(os.path.realpath(path))  # where the report of an LMDB file lies beside it
    found = verify_folder(where, progress) if where.is_dir() else _verify_file(where, progress)
    return VerifyReport(
        path=Path(path),
        samples=found.samples,
        bytes=found.bytes,
        problems=tuple(
            sorted(found.problems, key=lambda problem: (problem.file, problem.key or ""))
        ),
        seconds=time.perf_counter() - started,
    )


def _verify_file(path: Path, progress: Progress | None) -> Found:
    if path.exists():
        return verify_lmdb(path, progress)
    error = manifest.absent(path)
    if not isinstance(error, CorruptError):
        raise error
    return Found(0, 0, [Problem("unfinished", path.name, None, str(error))])


def verify_folder(folder: Path, progress: Progress | None) -> Found:
    """Read everything in a folder of shards.

    Raises:
        NotADatasetError: It never was a data set.
    """
    if not is_dataset(folder):
        raise NotADatasetError(f"{folder}: no data set; pack it first, or index it if it has tars")
    return _Verifier(folder, progress).run()


class _Verifier:
    """Checks a folder against its manifest, else against its catalog, else parses the tars."""

    def __init__(self, folder: Path, progress: Progress | None) -> None:
        self._folder = folder
        self._progress = progress
        self._manifest, problems = open_manifest(folder)
        self._problems = [_advised(problem) for problem in problems]
        self._catalog = open_catalog(folder)
        self._bytes = self._size(FILE_NAME) if self._manifest else 0
        self._owners = {
            shard.digest: shard.name for shard in (self._manifest.shards if self._manifest else ())
        }

    def run(self) -> Found:
        self._check_catalog()
        try:
            parts = parts_of(self._manifest, self._catalog)
        except CatalogError:
            parts = []
        names = os.listdir(self._folder)
        if not parts:
            parts = [Part(name, 0, 0, None) for name in sorted(filter(SHARD_NAME.fullmatch, names))]
        sizes = [part.shard.bytes if part.shard else self._size(part.name) for part in parts]
        done, total = 0, sum(sizes)
        self._tell(done, total)
        for size, (read, problems) in zip(sizes, self._check_all(parts), strict=True):
            self._bytes += read
            self._problems += problems
            done += size
            self._tell(done, total)
        self._check_report()
        self._check_names(names, parts)
        samples = sum(part.samples for part in parts)
        return Found(samples, self._bytes, self._problems)

    def _tell(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress("verify", done, total)

    def _check_all(self, parts: list[Part]) -> Iterator[tuple[int, list[Problem]]]:
        pool = Threads(min(_THREADS, cpu_count()), "fastdata-verify")
        try:
            yield from pool.map(self._check_part, parts)
        finally:
            pool.shutdown(cancel_futures=True)

    def _check_part(self, part: Part) -> tuple[int, list[Problem]]:
        """Check a shard and its index; called on several threads."""
        read, problems = self._check_shard(part)
        read_too, more = self._check_index(part)
        return read + read_too, problems + more

    def _check_shard(self, part: Part) -> tuple[int, list[Problem]]:
        path = self._folder / part.name
        read = 0
        problems: list[Problem] = []
        wrong = part.shard is None
        if part.shard is not None:
            read, digest, problems = check_stored(path, part.shard)
            wrong = bool(problems) and digest is not None
            owner = self._owners.get(digest or "")
            if wrong and owner is not None:
                text = f"it holds the bytes of {owner}: rename it"
                return read, [replace(problems[0], text=text)]
        if wrong:
            try:
                with open_regular(path) as fd:
                    read = os.fstat(fd).st_size
                    problems += self._locate(fd, part)
            except (OSError, ShardError) as error:
                problems.append(failure(part.name, error))
        return read, problems

    def _locate(self, fd: int, part: Part) -> list[Problem]:
        if self._catalog is not None and part.samples:
            try:
                return locate(fd, part.name, entries(self._catalog, part.first, part.samples))
            except (CatalogError, IndexError):
                pass  # _check_catalog reports it
        return structure(fd, part.name)

    def _check_index(self, part: Part) -> tuple[int, list[Problem]]:
        name = Path(part.name).with_suffix(".idx").name
        try:
            with open_regular(self._folder / name) as fd:
                data = os.pread(fd, os.fstat(fd).st_size, 0)
        except (OSError, ShardError) as error:
            return 0, [failure(name, error)]
        if part.shard is not None:
            good = digest_text(data) == part.shard.index
        elif self._catalog is not None and part.samples:
            try:
                good = data == index_of(entries(self._catalog, part.first, part.samples))
            except CatalogError:
                good = True
        else:
            good = True
        text = "its bytes are not those that were packed"
        return len(data), [] if good else [Problem("damaged", name, None, text)]

    def _check_catalog(self) -> None:
        path = self._folder / CATALOG_NAME
        if self._manifest is not None:
            read, _, problems = check_stored(path, self._manifest.catalog)
            self._bytes += read
            self._problems += [_advised(problem) for problem in problems]
            return
        try:
            catalog = Catalog.from_file(path)
            for _ in entries(catalog, 0, len(catalog)):
                pass
        except CatalogError as error:
            # An unfinished pack has no catalog yet, which is no damage.
            if path.exists() or not (self._folder / MARK_NAME).exists():
                kind = "damaged" if path.exists() else "missing"
                self._problems.append(_advised(Problem(kind, CATALOG_NAME, None, str(error))))

    def _check_report(self) -> None:
        if self._manifest is not None and self._manifest.report is not None:
            read, _, problems = check_stored(self._folder / REPORT_NAME, self._manifest.report)
            self._bytes += read
            self._problems += problems

    def _check_names(self, names: list[str], parts: list[Part]) -> None:
        """Report files that belong to no data set, and what an interrupted pack left."""
        known = {FILE_NAME, CATALOG_NAME, LOCK_NAME}
        if self._manifest is None or self._manifest.report is not None:
            known.add(REPORT_NAME)
        for part in parts:
            known |= {part.name, Path(part.name).with_suffix(".idx").name}
        if self._manifest is None:
            known.add(MARK_NAME)  # open_manifest reported the unfinished pack
        indexed = self._manifest is not None and self._manifest.options.get("indexed") is True
        for name in sorted(set(names) - known):
            if LEFTOVER.fullmatch(name):
                text = "left by an interrupted pack"
                self._problems.append(Problem("unfinished", name, None, text))
            elif not indexed or name.endswith((".tar", ".idx")):
                self._problems.append(Problem("extra", name, None, "not a file of the data set"))

    def _size(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_size
        except OSError:
            return 0


def _advised(problem: Problem) -> Problem:
    """The problem of a manifest or catalog, with what to do: nothing can rebuild them exactly."""
    if problem.kind == "unfinished":
        return problem
    return replace(problem, text=f"{problem.text}; {_ADVICE}")
