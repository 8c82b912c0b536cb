"""Writes the manifest of a folder of shards anew, from the shards and what is left of it."""

import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fastdata.converters.check.index import Classes, source_of
from fastdata.converters.check.rebuild_catalog import read_rows
from fastdata.converters.sources.listing import Skipped, count_reasons
from fastdata.converters.tar.layout import entries
from fastdata.converters.tar.packed_folder import parts_of
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    PLAIN_TYPES,
    REPORT_NAME,
    Manifest,
    Options,
    Shard,
    Stored,
    digest_text,
    fingerprint,
    parse,
)
from fastdata.errors import ManifestError
from fastdata.system.untrusted import JsonFields, read_json, read_regular

_FIELD = re.compile(rb'^  "(\w+)": ', re.MULTILINE)
_ALIKE = 40  # of 71 characters of a digest: chance does not get there


class Remnant(NamedTuple):
    """What a damaged manifest still says, to be believed only where a digest confirms it.

    Attributes:
        content: Values by name, those that can be read.
    """

    content: dict[str, Any]

    @property
    def options(self) -> Options:
        """Options of the pack."""
        found = self.content.get("options")
        if isinstance(found, dict) and all(isinstance(x, PLAIN_TYPES) for x in found.values()):
            return found
        return {}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        found = self.content.get("classes")
        if isinstance(found, list) and all(isinstance(name, str) for name in found):
            return tuple(found)
        return ()

    def counts(self, name: str) -> dict[str, int]:
        """Numbers by reason."""
        found = self.content.get(name)
        if isinstance(found, dict) and all(type(count) is int for count in found.values()):
            return found
        return {}


def remnant(path: Path) -> Remnant:
    """Read what can be read of a manifest, field by field."""
    try:
        text = read_regular(path)
    except OSError:
        return Remnant({})
    content = {}
    starts = [*_FIELD.finditer(text), None]
    for match, after in pairwise(starts):
        if match is not None:
            value = text[match.end() : after.start() if after else len(text)].rstrip(b"\n")
            value = value if after else value.removesuffix(b"}")
            with suppress(ManifestError):
                value = value.rstrip(b",\n ")
                content[match[1].decode()] = read_json(value, str(path), ManifestError, "")
    return Remnant(content)


def rebuild_manifest(folder: Path, catalog: Catalog, kept: Remnant) -> tuple[Manifest, str] | None:
    """The manifest of shards that all agree with the catalog, and what it is worth.

    Where what is left of the old one suffices, it is the old one to the bit.

    Returns:
        None where a shard does not agree with the catalog.
    """
    parts = parts_of(None, catalog)
    tars = read_rows(folder, [part.name for part in parts], catalog.field_names)
    if tars is None:
        return None
    builder = CatalogBuilder(catalog.field_names)
    derived = Classes()
    for (_, rows), part in zip(tars, parts, strict=True):
        samples = list(entries(catalog, part.first, part.samples))
        stated = [(*entry.contents[0][2:], entry.label) for entry in samples]
        if stated != [(row.offset, row.length, row.crc, row.label) for row in rows]:
            return None
        for row in rows:
            derived.add(row.key, row.label)
            builder.append(shard=0, **row._asdict())
    shards = tuple(shard for shard, _ in tars)
    for classes in (kept.classes, derived.names()):
        manifest = _manifest(folder, builder, catalog.field_names, shards, classes, kept)
        stated_digest = str(kept.content.get("digest"))
        alike = sum(a == b for a, b in zip(manifest.digest(), stated_digest, strict=False))
        if alike >= _ALIKE:
            with suppress(ManifestError):  # what was edited can have the digest of what is none
                parse(manifest.encode(), FILE_NAME)
                return manifest, "dataset.json: as it was, from the shards and what was left of it"
    fresh = Remnant({"options": {"indexed": True}, "source": source_of(list(shards))})
    manifest = _manifest(folder, builder, catalog.field_names, shards, derived.names(), fresh)
    return manifest, "dataset.json: rebuilt; options, source and classes without images are lost"


def _manifest(
    folder: Path,
    builder: CatalogBuilder,
    fields: tuple[str, ...],
    shards: tuple[Shard, ...],
    classes: tuple[str, ...],
    kept: Remnant,
) -> Manifest:
    catalog = read_regular(folder / CATALOG_NAME, most=1 << 40)
    report, skipped = _report(folder / REPORT_NAME)
    return Manifest(
        kind="tar",
        samples=len(builder),
        classes=classes,
        class_counts=builder.label_counts(len(classes)),
        fields=fields,
        options=kept.options,
        source=str(kept.content.get("source")),
        skipped=skipped,
        report=report,
        kept=kept.counts("kept"),
        noted=kept.counts("noted"),
        shards=shards,
        catalog=Stored(len(catalog), digest_text(catalog)),
        fingerprint=fingerprint(classes, fields, shards, builder.labels_digest()),
    )


def _report(path: Path) -> tuple[Stored | None, dict[str, int]]:
    try:
        text = read_regular(path)
        entries = [_skipped(line, path) for line in text.splitlines()]
        return Stored(len(text), digest_text(text)), count_reasons(entries)
    except (OSError, ManifestError):
        return None, {}


def _skipped(line: bytes, path: Path) -> Skipped:
    fields = JsonFields.read(line, str(path), ManifestError, "")
    found = Skipped(name=fields.take("name", str), reason=fields.take("reason", str))
    fields.end()
    return found
