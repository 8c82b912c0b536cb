"""Whether an LMDB file is what was packed, to the bit."""

import hashlib
import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from fastdata.converters.problems import (
    Found,
    Problem,
    Progress,
    check_stored,
    digest_of,
    failure,
)
from fastdata.converters.tar.layout import Content, Entry, entries
from fastdata.dataset.catalog.format import PART_ROWS
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.lmdb.file import LMDBFile, check_seal, open_file, read_catalog, read_manifest
from fastdata.dataset.lmdb.format import CATALOG_KEY, FIRST, PAGE, part_key, sample_key
from fastdata.dataset.manifest import REPORT_NAME, Manifest, Shard, sha256_text
from fastdata.errors import CatalogError, ManifestError, ShardError
from fastdata.system import resources
from fastdata.system.files import temporary
from fastdata.system.threads import Threads
from fastdata.system.untrusted import open_regular

_THREADS = 4


def read_contents(file: LMDBFile, entry: Entry) -> dict[str | None, bytes]:
    """Image (None) and fields of a sample by name: those whose bytes match their CRC32C."""
    try:
        value = file.get(sample_key(entry.number)) or b""
    except ShardError:
        return {}
    found = {part.field: (part, value[part.offset :][: part.size]) for part in entry.contents}
    return {name: data for name, (part, data) in found.items() if part.matches(data)}


def verify_lmdb(path: Path, progress: Progress | None) -> Found:
    """Read every byte of an LMDB file.

    Raises:
        NotADatasetError: It never was a data set.
    """
    try:
        file = open_file(path)
    except (ShardError, ManifestError) as error:
        size = path.stat().st_size
        return Found(0, size, [Problem("damaged", path.name, None, str(error))])
    try:
        return _Verifier(file, progress).run()
    except OSError as error:
        return Found(0, 0, [failure(path.name, error)])
    finally:
        file.close()


class _Verifier:
    def __init__(self, file: LMDBFile, progress: Progress | None) -> None:
        self._file = file
        self._name = file.path.name
        self._progress = progress
        self._problems: list[Problem] = []
        self._catalog: Catalog | None = None

    def run(self) -> Found:
        try:
            check_seal(self._file.path)
        except ShardError as error:
            self._report(str(error))
        try:
            manifest = read_manifest(self._file)
        except (ManifestError, ShardError) as error:
            self._report(str(error))
            return Found(0, self._file.size, self._problems)
        self._check_catalog(manifest)
        if self._progress is not None:
            self._progress("verify", 0, self._file.groups_end)
        firsts = accumulate((group.samples for group in manifest.shards), initial=0)
        for group, first, (done, good) in zip(
            manifest.shards, firsts, self._check_groups(manifest), strict=False
        ):
            if not good:
                self._locate(group, first)
            if self._progress is not None:
                self._progress("verify", done, self._file.groups_end)
        read = self._file.size + self._check_beside(manifest)
        return Found(manifest.samples, read, self._problems)

    def _check_groups(self, manifest: Manifest) -> Iterator[tuple[int, bool]]:
        """Yield the end of each group, and whether its pages match their digest."""
        ends = list(accumulate((group.bytes for group in manifest.shards), initial=FIRST * PAGE))
        pool = Threads(min(_THREADS, resources.cpu_count()), "fastdata-verify")
        try:
            with open_regular(self._file.path) as fd:
                sizes = [group.bytes for group in manifest.shards]
                found = pool.map(digest_of, [fd] * len(sizes), ends[:-1], sizes)
                for group, end, digest in zip(manifest.shards, ends[1:], found, strict=True):
                    yield end, digest == group.digest
                pool.shutdown()  # before the file is closed
        finally:
            pool.shutdown(cancel_futures=True)

    def _locate(self, group: Shard, first: int) -> None:
        """Report a damaged group, and the samples in it that are damaged."""
        problem = Problem("damaged", self._name, None, f"the pages of {group.name}")
        self._problems.append(problem)
        if self._catalog is None:
            return
        try:
            for entry in entries(self._catalog, first, group.samples):
                good = read_contents(self._file, entry)
                wrong = [_describe(part) for part in entry.contents if part.field not in good]
                if wrong:
                    self._report(", ".join(wrong), entry.key)
        except (CatalogError, ShardError, IndexError):
            pass  # _check_catalog reports it

    def _check_catalog(self, manifest: Manifest) -> None:
        try:
            catalog = read_catalog(self._file)
            digest = hashlib.sha256(self._file.get(CATALOG_KEY) or b"")
            for number in range(-(-len(catalog) // PART_ROWS)):
                digest.update(self._file.get(part_key(number)) or b"")
        except (CatalogError, ShardError) as error:
            self._report(str(error))
            return
        self._catalog = catalog
        if sha256_text(digest.digest()) != manifest.catalog.digest:
            self._report("the catalog does not match its digest in the manifest")

    def _check_beside(self, manifest: Manifest) -> int:
        path = self._file.path
        report = _report_path(path)
        read = 0
        if manifest.report is not None:
            read, _, problems = check_stored(report, manifest.report)
            self._problems += problems
        elif os.path.lexists(report):
            self._problems.append(Problem("extra", report.name, None, "not a file of the data set"))
        for left in leftovers(path):
            text = "left by an interrupted pack"
            self._problems.append(Problem("unfinished", left.name, None, text))
        return read

    def _report(self, text: str, key: str | None = None) -> None:
        self._problems.append(Problem("damaged", self._name, key, text))


def leftovers(path: Path) -> list[Path]:
    """What an interrupted pack left beside an LMDB file."""
    journal = path.with_name(f"{path.name}.journal")
    names = (temporary(path), journal, temporary(journal), temporary(_report_path(path)))
    return [name for name in names if os.path.lexists(name)]


def _report_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.{REPORT_NAME}")


def _describe(part: Content) -> str:
    what = "image" if part.field is None else f"field {part.field!r}"
    return f"{what} of {part.size} bytes"
