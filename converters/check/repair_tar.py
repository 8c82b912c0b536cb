"""Puts a folder of shards right, file by file."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from fastdata.converters.check.locate import locate, read_content
from fastdata.converters.check.originals import Originals
from fastdata.converters.check.rebuild_catalog import rebuild_catalog
from fastdata.converters.check.rebuild_manifest import rebuild_manifest, remnant
from fastdata.converters.problems import CHUNK, check_stored, read_range
from fastdata.converters.tar.layout import Entry, end_of, entries, index_of, pieces, tail
from fastdata.converters.tar.packed_folder import (
    LEFTOVER,
    Part,
    open_catalog,
    open_manifest,
    parts_of,
)
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    MARK_NAME,
    REPORT_NAME,
    Manifest,
    digest_text,
    sha256_text,
)
from fastdata.errors import CatalogError, ShardError
from fastdata.system.files import (
    TMP_SUFFIX,
    create,
    fsync_folder,
    own_size,
    publish,
    sync,
    temporary,
    write_atomically,
)
from fastdata.system.untrusted import open_regular


def repair_folder(folder: Path, source: Path | None, wrong: set[str]) -> list[str]:
    """Repair what can be repaired.

    Args:
        folder: The folder.
        source: The folder that was packed, if there is one.
        wrong: Names of the files that ``verify`` found problems with.

    Returns:
        What was repaired, in words.

    Raises:
        OSError: A file cannot be written.
        SourceError: ``source`` cannot be read.
    """
    return _Repair(folder, source, wrong).run()


class _Repair:
    def __init__(self, folder: Path, source: Path | None, wrong: set[str]) -> None:
        self._folder = folder
        self._source = source
        self._wrong = wrong
        self._manifest = open_manifest(folder)[0]
        self._fixed: list[str] = []

    def run(self) -> list[str]:
        if self._manifest is None and (self._folder / MARK_NAME).exists():
            return []  # the pack itself must go on
        kept = remnant(self._folder / FILE_NAME)
        options = self._manifest.options if self._manifest else kept.options
        self._originals = Originals(self._source, options)
        if self._manifest is not None:
            self._put_in_place(self._manifest)
        catalog = self._good_catalog()
        if catalog is None:
            return self._fixed
        for part in parts_of(self._manifest, catalog):
            if part.name in self._wrong:
                self._mend_shard(part, catalog)
            self._mend_index(part, catalog)
        if self._manifest is None:
            rebuilt = rebuild_manifest(self._folder, catalog, kept)
            if rebuilt is not None:
                self._manifest, text = rebuilt
                write_atomically(self._folder / FILE_NAME, self._manifest.encode())
                self._fixed.append(text)
        if self._manifest is not None:
            self._mend_report(self._manifest, catalog)
            self._remove_leftovers()
        return self._fixed

    def _good_catalog(self) -> Catalog | None:
        """The catalog, rebuilt where it is damaged; None if it cannot be."""
        path = self._folder / CATALOG_NAME
        if self._manifest is None:
            catalog = open_catalog(self._folder)
            try:  # its own checksums must do
                for _ in entries(catalog, 0, len(catalog)) if catalog else ():
                    pass
            except CatalogError:
                return None
            return catalog
        if CATALOG_NAME in self._wrong:
            built = rebuild_catalog(self._folder, self._manifest, self._source, self._wrong)
            if built is None:
                return None
            built.write(path)
            self._fixed.append(f"{CATALOG_NAME}: rebuilt from the shards")
        return open_catalog(self._folder)

    def _put_in_place(self, manifest: Manifest) -> None:
        """Give shards that were exchanged or renamed their names."""
        wrong = [shard for shard in manifest.shards if shard.name in self._wrong]
        if not wrong:
            return
        good = {shard.name for shard in manifest.shards} - self._wrong
        found: dict[str | None, Path] = {}
        # A repair that was stopped may have left the only copy of a shard in a temporary file.
        for pattern in ("*.tar", f"*.tar{TMP_SUFFIX}"):
            for path in sorted(self._folder.glob(pattern)):
                if path.name not in good:
                    found[check_stored(path, manifest.catalog)[1]] = path
        moved = [shard for shard in wrong if shard.digest in found]
        for shard in moved:  # all copies are made before any file is replaced
            copy = temporary(self._folder / shard.name)
            if found[shard.digest] != copy or own_size(copy) is None:
                _copy(found[shard.digest], copy)
        for shard in moved:
            path = self._folder / shard.name
            publish(path)
            self._wrong.discard(shard.name)
            self._fixed.append(f"{shard.name}: found under the name {found[shard.digest].name}")

    def _mend_shard(self, part: Part, catalog: Catalog) -> None:
        path = self._folder / part.name
        samples = list(entries(catalog, part.first, part.samples))
        tmp = temporary(path)
        taken: dict[str, None] = {}
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(open_regular(path))
                if not self._is_wrong(fd, part, samples):
                    return
            except (OSError, ShardError):
                fd = -1
            stack.callback(tmp.unlink, missing_ok=True)
            file = stack.enter_context(os.fdopen(create(tmp), "wb"))
            digest = hashlib.sha256()
            for data in self._bytes(fd, samples, taken):
                if data is None:
                    return
                digest.update(data)
                file.write(data)
            if part.shard is not None and sha256_text(digest.digest()) != part.shard.digest:
                return
            sync(file)
            publish(path)
        text = f"{part.name}: headers and end written anew"
        if taken:
            text = f"{part.name}: {len(taken)} samples taken from the source: {', '.join(taken)}"
        self._fixed.append(text)

    def _is_wrong(self, fd: int, part: Part, samples: list[Entry]) -> bool:
        if part.shard is None:
            return bool(locate(fd, part.name, samples))
        return bool(check_stored(self._folder / part.name, part.shard)[2])

    def _bytes(
        self, fd: int, samples: list[Entry], taken: dict[str, None]
    ) -> Iterator[bytes | None]:
        """Yield what the shard must hold; None where that cannot be known."""
        at = 0
        for entry in samples:
            found = pieces(entry, at)
            if found is None:
                yield None  # not laid out by fastdata
                return
            for piece in found:
                data = piece.known
                if piece.content is not None:
                    data = None if fd < 0 else read_content(fd, piece.content)
                    if data is None:
                        taken[entry.key] = None
                        data = self._originals.find(entry, piece.content)
                yield data
            at = end_of(found)
        yield tail(at).known

    def _mend_index(self, part: Part, catalog: Catalog) -> None:
        path = (self._folder / part.name).with_suffix(".idx")
        if path.name not in self._wrong:
            return
        good = index_of(entries(catalog, part.first, part.samples))
        if good is None:
            return
        if part.shard is None or digest_text(good) == part.shard.index:
            write_atomically(path, good)
            self._fixed.append(f"{path.name}: written anew")

    def _mend_report(self, manifest: Manifest, catalog: Catalog) -> None:
        path = self._folder / REPORT_NAME
        if manifest.report is None or path.name not in self._wrong:
            return
        names = {os.fsencode(entry.name) for entry in entries(catalog, 0, len(catalog))}
        text = self._originals.report(names, manifest.fields)
        if text is not None and digest_text(text) == manifest.report.digest:
            write_atomically(path, text)
            self._fixed.append(f"{REPORT_NAME}: listed anew from the source")

    def _remove_leftovers(self) -> None:
        for name in sorted(os.listdir(self._folder)):
            if LEFTOVER.fullmatch(name):
                (self._folder / name).unlink()
                self._fixed.append(f"{name}: removed, a pack that was stopped had left it")
        fsync_folder(self._folder)


def _copy(path: Path, copy: Path) -> None:
    """Copy a file to a new one, which may have the name of a link to it, and sync that."""
    with open_regular(path) as fd, os.fdopen(create(copy), "wb") as file:
        at = 0
        while data := read_range(fd, at, CHUNK):
            file.write(data)
            at += len(data)
        sync(file)
