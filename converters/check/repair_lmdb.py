"""Puts an LMDB file right: writes it anew from its values, its catalog and its manifest."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fastdata.converters.check.originals import Originals
from fastdata.converters.check.verify_lmdb import leftovers, read_contents, report_path
from fastdata.converters.journal import Journal
from fastdata.converters.lmdb.writer import LmdbWriter
from fastdata.converters.problems import (
    digest_of,
    read_range,
)
from fastdata.converters.tar.layout import Entry, entries
from fastdata.converters.writer import Item
from fastdata.dataset import manifest as manifests
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.catalog.format import MAGIC, PART_ROWS
from fastdata.dataset.catalog.part import CatalogPart, in_memory
from fastdata.dataset.catalog.reader import Catalog, decode_header, header_bytes
from fastdata.dataset.lmdb.file import LMDBFile, open_file
from fastdata.dataset.lmdb.format import FIRST, PAGE, PAGE_HEADER
from fastdata.dataset.manifest import Manifest, Shard, digest_text
from fastdata.errors import CatalogError, FastdataError, ManifestError
from fastdata.system.files import create, temporary, write_atomically
from fastdata.system.untrusted import open_regular

_BEGIN = b'{\n  "catalog": {'  # of every manifest
_CHUNK = 16 << 20


def repair_lmdb(path: Path, source: Path | None, wrong: set[str]) -> list[str]:
    """Repair what can be repaired.

    Args:
        path: The file.
        source: The folder that was packed, if there is one.
        wrong: Names of the files that ``verify`` found problems with.

    Returns:
        What was repaired, in words.

    Raises:
        OSError: A file cannot be written.
        SourceError: ``source`` cannot be read.
    """
    if not path.exists():
        return []  # the pack itself must go on
    with open_regular(path) as fd:
        manifest = _find_manifest(fd, str(path))
        catalog = None if manifest is None else _find_catalog(fd, manifest, str(path))
    if manifest is None or catalog is None:
        return []
    fixed = []
    for left in leftovers(path):
        left.unlink()
        fixed.append(f"{left.name}: removed, a pack that was stopped had left it")
    originals = Originals(source, manifest.options)
    if path.name in wrong:
        taken = _Rewrite(path, manifest, catalog, originals).run()
        if taken is not None:
            words = f", {len(taken)} samples from the source: {', '.join(taken)}" if taken else ""
            fixed.append(f"{path.name}: written anew{words}")
    report = report_path(path)
    if manifest.report is not None and report.name in wrong:
        names = {os.fsencode(entry.name) for entry in entries(catalog, 0, len(catalog))}
        text = originals.report(names, manifest.fields)
        if text is not None and digest_text(text) == manifest.report.digest:
            write_atomically(report, text)
            fixed.append(f"{report.name}: listed anew from the source")
    return fixed


def _find_manifest(fd: int, where: str) -> Manifest | None:
    """The manifest, wherever in the file it lies; it is among the last entries."""
    size = os.fstat(fd).st_size
    for start in range(max(0, size - _CHUNK), -_CHUNK, -_CHUNK):
        data = read_range(fd, max(0, start), 2 * _CHUNK)
        at = data.rfind(_BEGIN)
        end = data.find(b"\n}\n", at)
        if at >= 0 and end >= 0:
            with suppress(ManifestError):
                found = manifests.parse(data[at : end + 3], where)
                return found if found.kind == "lmdb" else None
    return None


def _find_catalog(fd: int, manifest: Manifest, where: str) -> Catalog | None:
    """The catalog, wherever behind the groups it lies; all of it is checked."""
    groups_end = FIRST * PAGE + sum(group.bytes for group in manifest.shards)
    data = memoryview(read_range(fd, groups_end, os.fstat(fd).st_size - groups_end))
    at = bytes(data).find(MAGIC)
    if at < 0:
        return None
    try:
        size = header_bytes(bytes(data[at : at + 20]), where)
        header = decode_header(bytes(data[at : at + size]), where)
        parts = []
        for stated in header.parts:
            for start in _places(len(data), stated.bytes):
                with suppress(CatalogError):
                    part = data[start : start + stated.bytes]
                    CatalogPart(stated, len(header.fields), in_memory(part), where)
                    parts.append(part)
                    break
        if len(parts) != len(header.parts):
            return None
        catalog = Catalog.from_parts(
            bytes(data[at : at + size]), lambda number: in_memory(parts[number]), where
        )
        for _ in entries(catalog, 0, len(catalog)):
            pass
    except CatalogError:
        return None
    return catalog


def _places(size: int, length: int) -> Iterator[int]:
    """Where a value can lie: behind a page's header, or anywhere in a leaf if it is small."""
    yield from range(PAGE_HEADER.size, size, PAGE)
    if length < PAGE:
        yield from range(size - length)


class _Rewrite:
    def __init__(
        self, path: Path, manifest: Manifest, catalog: Catalog, originals: Originals
    ) -> None:
        self._path = path
        self._manifest = manifest
        self._catalog = catalog
        self._originals = originals
        self._taken: dict[str, None] = {}

    def run(self) -> list[str] | None:
        """Write the file; return keys of samples from the source, None if it stays as it is."""
        journal = Journal(self._path.with_name(f"{self._path.name}.journal"))
        journal.begin("{}")
        done = self._whole_groups()
        writer = LmdbWriter(self._path, 0, journal, done)
        try:
            if self._write(writer, len(done)):
                return list(self._taken)
        except BaseException:
            self._drop(writer, journal)
            raise
        self._drop(writer, journal)
        return None

    def _drop(self, writer: LmdbWriter, journal: Journal) -> None:
        writer.abort()
        temporary(self._path).unlink(missing_ok=True)
        journal.remove()

    def _whole_groups(self) -> tuple[Shard, ...]:
        """Copy the groups that are whole, from the first one on, into the temporary file."""
        done = []
        at = FIRST * PAGE
        new = create(temporary(self._path))
        with open_regular(self._path) as fd, os.fdopen(new, "wb") as file:
            file.seek(at)
            for group in self._manifest.shards:
                if digest_of(fd, at, group.bytes) != group.digest:
                    break
                for start in range(at, at + group.bytes, _CHUNK):
                    file.write(read_range(fd, start, min(_CHUNK, at + group.bytes - start)))
                at += group.bytes
                done.append(group)
        return tuple(done)

    def _write(self, writer: LmdbWriter, done: int) -> bool:
        first = sum(group.samples for group in self._manifest.shards[:done])
        file: LMDBFile | None = None
        with suppress(FastdataError):
            file = open_file(self._path)
        for group in self._manifest.shards[done:]:
            for entry in entries(self._catalog, first, group.samples):
                item = self._item(file, entry)
                if item is None:
                    return False
                writer.append(item)
            writer.end_shard(b"")
            first += group.samples
        if writer.finish() != self._manifest.shards:
            return False
        if writer.put_catalog(self._builder()) != self._manifest.catalog:
            return False
        writer.publish(self._manifest.encode())
        Journal(self._path.with_name(f"{self._path.name}.journal")).remove()
        return True

    def _item(self, file: LMDBFile | None, entry: Entry) -> Item | None:
        good = {} if file is None else read_contents(file, entry)
        found: dict[str | None, bytes] = {}
        for content in entry.contents:
            data = good.get(content.field)
            if data is None:
                data = self._originals.find(entry, content)
                self._taken[entry.key] = None
            if data is None:
                return None
            found[content.field] = data
        image = found.pop(None)
        fields = {name: data for name, data in found.items() if name is not None}
        key = os.fsencode(entry.key)
        return Item(key, entry.contents[0].extension, image, entry.label, fields)

    def _builder(self) -> CatalogBuilder:
        """The catalog as it is written."""
        builder = CatalogBuilder(self._catalog.field_names)
        rows = (
            row
            for start in range(0, len(self._catalog), PART_ROWS)
            for row in self._catalog.rows(
                range(start, min(start + PART_ROWS, len(self._catalog)))
            ).tolist()
        )
        samples = entries(self._catalog, 0, len(self._catalog))
        for entry, row in zip(samples, rows, strict=True):
            offset, length, crc, shard, label, width, height, flags, _ = row
            builder.append(
                os.fsencode(entry.key),
                os.fsencode(entry.name),
                offset=offset,
                length=length,
                crc=crc,
                shard=shard,
                label=label,
                width=width,
                height=height,
                flags=flags,
                fields={
                    content.field: content[2:]
                    for content in entry.contents
                    if content.field is not None
                },
            )
        return builder
