"""The manifest of a packed data set, and the folder of shards that it describes.

The manifest is dataset.json beside shards, and an entry within an LMDB file. It is written last, so
its presence means that the pack is complete. It contains no time and no absolute path: the same
source and options give the same bytes on every machine. It has one spelling (sorted names, two
spaces of indent, ASCII) and any other is an error, so that not a bit of it can change unnoticed.
"""

import hashlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fastdata.dataset.catalog.reader import Catalog
from fastdata.errors import CatalogError, ManifestError, NotADatasetError, ShardError
from fastdata.system.files import temporary
from fastdata.system.untrusted import JsonFields, read_regular

FILE_NAME = "dataset.json"
CATALOG_NAME = "catalog.fdc"
REPORT_NAME = "skipped.jsonl"  # beside shards; of an LMDB file, its name + "." + this
MARK_NAME = ".pack.journal"  # in a folder while its pack is unfinished
LOCK_NAME = ".pack.lock"  # in a folder while a process packs into it
FORMAT = "fastdata"
VERSION = 1

Options = Mapping[str, bool | int | str | None]

_SHARD_NAME = re.compile(r"shard-\d{6,}\.tar(\.tmp)?")
_PLAIN_NAME = re.compile(r"[^/\\\0]*[^/\\\0.][^/\\\0]*")
PLAIN_TYPES = (bool, int, str, type(None))  # of options
MIXED = "they are of different packs; restore the files of one"
_ADVICE = "it is damaged or was edited: restore it, or pack again with --overwrite"


@dataclass(frozen=True)
class Stored:
    """Size and digest of a file, or of the entries of an LMDB that take its place.

    Attributes:
        bytes: Its size.
        digest: SHA-256 of its content, ``"sha256:..."``.
    """

    bytes: int
    digest: str


@dataclass(frozen=True)
class Shard(Stored):
    """One tar file, or one group of consecutive LMDB entries.

    Attributes:
        bytes: Size of the tar file; for a group, the bytes of its values together.
        digest: Of the tar file; for a group, of its values in the order of their ids.
        name: File name within the folder; for a group a name of the same shape.
        samples: Number of samples; their ids continue those of the shard before.
        index: Digest of the DALI index file beside the tar; None for a group.
    """

    name: str
    samples: int
    index: str | None


class Skipped(NamedTuple):
    """A line of skipped.jsonl: a file left out, or packed although it is damaged.

    Attributes:
        name: Its path relative to the source.
        reason: Why: a fixed text, after which a colon may bring detail.
    """

    name: str
    reason: str

    @property
    def kind(self) -> str:
        """The reason without its detail."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True)
class Manifest:
    """What a packed data set contains, and how it was made.

    Attributes:
        kind: ``"tar"`` or ``"lmdb"``.
        samples: Number of samples.
        classes: Names of the classes in the order of their labels; empty for a flat folder.
        class_counts: Samples of each class.
        fields: Names of further fields that samples may have.
        options: The options of the pack that change its content.
        source: Fingerprint of the source that was packed.
        skipped: How many files were left out, by reason.
        report: skipped.jsonl, the list of files left out; None if there are none.
        kept: How many JPEGs could not get restart markers and kept their bytes, by reason.
        noted: How many images lost something or were changed when packed, by what it was.
        shards: The shards, or groups, in the order of their ids.
        catalog: The catalog.
        fingerprint: Hash of the content: labels, classes, fields and the shards' digests.
    """

    kind: str
    samples: int
    classes: tuple[str, ...]
    class_counts: tuple[int, ...]
    fields: tuple[str, ...]
    options: Options
    source: str
    skipped: Mapping[str, int]
    report: Stored | None
    kept: Mapping[str, int]
    noted: Mapping[str, int]
    shards: tuple[Shard, ...]
    catalog: Stored
    fingerprint: str

    def encode(self) -> bytes:
        """The content of dataset.json."""
        content = {**self._content(), "digest": self.digest()}
        return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode("ascii")

    def digest(self) -> str:
        """SHA-256 of everything else in dataset.json."""
        return digest_text(_canonical(self._content()))

    def _content(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "version": VERSION,
            **vars(self),
            "shards": [vars(shard) for shard in self.shards],
            "report": None if self.report is None else vars(self.report),
            "catalog": vars(self.catalog),
        }


def count_reasons(skipped: Iterable[Skipped]) -> dict[str, int]:
    """How often each reason comes, without its detail, sorted by reason."""
    return dict(sorted(Counter(entry.kind for entry in skipped).items()))


def fingerprint(
    classes: tuple[str, ...],
    fields: tuple[str, ...],
    shards: tuple[Shard, ...],
    labels: str,
) -> str:
    """Hash of a data set's content, by which a resumed run knows it again.

    Args:
        classes: Names of the classes.
        fields: Names of further fields.
        shards: The shards; their digests count.
        labels: SHA-256 of all labels as little-endian int32, in hexadecimal digits; the shards'
            digests of an LMDB do not cover labels.
    """
    content = {
        "classes": classes,
        "fields": fields,
        "labels": labels,
        "shards": [shard.digest for shard in shards],
    }
    return digest_text(_canonical(content))


def load(folder: Path) -> Manifest:
    """Read the manifest of a folder of shards.

    Raises:
        NotADatasetError: The path is not a folder of shards.
        ManifestError: dataset.json is damaged, or missing beside shards: an unfinished pack.
    """
    path = folder / FILE_NAME
    try:
        data = read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise absent(folder) from None
    except OSError as error:
        raise ManifestError(f"{path}: cannot read the manifest: {error.strerror}") from error
    return parse(data, str(path))


def parse(data: bytes, where: str) -> Manifest:
    """Read and check a manifest.

    Args:
        data: Its bytes.
        where: The file, for errors.

    Raises:
        ManifestError: It is not, to the byte, what this version writes.
    """
    reader = JsonFields.read(data, where, ManifestError, _ADVICE)
    if reader.take("format", str) != FORMAT:
        raise ManifestError(f"{where}: not a manifest of fastdata; {_ADVICE}")
    version = reader.take("version", int)
    if version != VERSION:
        raise ManifestError(f"{where}: version {version}, this program reads version {VERSION}")
    reader.digest("digest")  # its form; its value is compared below
    manifest = _manifest(reader)
    # One comparison checks the digest and the spelling of everything else.
    if manifest.encode() != data:
        raise ManifestError(f"{where}: does not match its digest; {_ADVICE}")
    for problem in _contradictions(manifest):
        raise ManifestError(f"{where}: {problem}; {_ADVICE}")
    return manifest


def read_shard(reader: JsonFields) -> Shard:
    """Read the shard that a JSON object describes; errors are the reader's."""
    index = reader.digest_or_none("index")
    shard = Shard(
        name=reader.take("name", str),
        samples=reader.count("samples"),
        bytes=reader.count("bytes"),
        digest=reader.digest("digest"),
        index=index,
    )
    reader.end()
    # Never a path: a crafted manifest must not lead a reader out of the folder.
    if not _PLAIN_NAME.fullmatch(shard.name):
        raise reader.problem(f"shard name {shard.name!r} is not a plain file name")
    return shard


def _manifest(reader: JsonFields) -> Manifest:
    catalog = reader.inner("catalog", reader.take("catalog", dict))
    report = reader.object_or_none("report")
    shards = reader.list_of("shards", dict)
    manifest = Manifest(
        kind=reader.take("kind", str),
        samples=reader.count("samples"),
        classes=reader.list_of("classes", str),
        class_counts=reader.list_of("class_counts", int),
        fields=reader.list_of("fields", str),
        options=reader.take("options", dict),
        source=reader.digest("source"),
        skipped=reader.counts("skipped"),
        report=None if report is None else _stored(report),
        kept=reader.counts("kept"),
        noted=reader.counts("noted"),
        shards=tuple(
            read_shard(reader.inner(f"shard {number}", shard))
            for number, shard in enumerate(shards)
        ),
        catalog=_stored(catalog),
        fingerprint=reader.digest("fingerprint"),
    )
    reader.end()
    return manifest


def _stored(reader: JsonFields) -> Stored:
    stored = Stored(reader.count("bytes"), reader.digest("digest"))
    reader.end()
    return stored


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield what no pack would have written, although the digest is right."""
    counts, shards = manifest.class_counts, manifest.shards
    if manifest.kind not in ("tar", "lmdb"):
        yield f"kind {manifest.kind!r} is neither tar nor lmdb"
    if sum(shard.samples for shard in shards) != manifest.samples:
        yield f"the shards do not hold {manifest.samples} samples together"
    if len({shard.name for shard in shards}) < len(shards):
        yield "two shards have one name"
    if len(counts) != len(manifest.classes):
        yield f"{len(counts)} class_counts for {len(manifest.classes)} classes"
    if min(counts, default=0) < 0 or sum(counts) > manifest.samples:
        yield f"class_counts do not fit {manifest.samples} samples"
    if not all(isinstance(value, PLAIN_TYPES) for value in manifest.options.values()):
        yield "options must hold numbers, texts, true, false or null"


def is_unfinished(path: Path) -> bool:
    """Whether a pack to this path, which has no manifest, was begun but not finished."""
    if not path.is_dir():
        return not path.exists() and temporary(path).exists()
    # Shards or a journal without a manifest: the manifest would have come last.
    names = [entry.name for entry in path.iterdir()]
    return MARK_NAME in names or any(map(_SHARD_NAME.fullmatch, names))


def absent(path: Path) -> ManifestError | NotADatasetError:
    """Make the error for a path without a manifest: an unfinished pack, or no data set."""
    if is_unfinished(path):
        missing = f" (no {FILE_NAME})" if path.is_dir() else ""
        return ManifestError(
            f"{path}: unfinished pack{missing}; rerun the same fastdata pack command to resume"
        )
    if not path.exists():
        return NotADatasetError(f"{path}: no such file or folder")
    if not path.is_dir():
        return NotADatasetError(f"{path}: not a folder of shards")
    return NotADatasetError(f"{path}: neither {FILE_NAME} nor shards; pack it first")


def _canonical(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")


def sha256_text(digest: bytes) -> str:
    """A SHA-256 as manifests spell it, ``"sha256:..."``."""
    return f"sha256:{digest.hex()}"


def digest_text(data: bytes) -> str:
    """The SHA-256 of bytes, spelled so."""
    return sha256_text(hashlib.sha256(data).digest())


class Shards(NamedTuple):
    """A folder of shards."""

    path: Path
    manifest: Manifest
    catalog: Catalog


def open_shards(folder: Path) -> Shards:
    """Open a folder of shards; manifest, catalog and shards must agree by their sizes.

    Raises:
        NotADatasetError: The path is not a folder of shards.
        ManifestError: The manifest is damaged, or the pack unfinished.
        CatalogError: The catalog is damaged, or of another pack.
        ShardError: A shard is missing or of another size.
    """
    found = load(folder)
    if found.kind != "tar":
        raise ManifestError(f"{folder}: the manifest is that of an LMDB file, not of shards")
    path = folder / CATALOG_NAME
    catalog = Catalog.from_file(path)
    refuse_other_catalog(folder, found, catalog)
    size = path.stat().st_size
    if size != found.catalog.bytes:
        raise CatalogError(
            f"{path}: {size} bytes, the manifest states {found.catalog.bytes}; {MIXED}"
        )
    # Digests would take hours; sizes tell a missing or truncated file at once.
    for shard in found.shards:
        _check_size(folder / shard.name, shard.bytes)
    return Shards(folder, found, catalog)


def refuse_other_catalog(path: Path, found: Manifest, catalog: Catalog) -> None:
    """Check that a catalog has the samples and fields that the manifest states.

    Raises:
        CatalogError: They are of different packs.
    """
    if len(catalog) != found.samples or catalog.field_names != found.fields:
        raise CatalogError(
            f"{path}: the catalog holds {len(catalog)} samples with fields "
            f"{catalog.field_names}, the manifest states {found.samples} with "
            f"{found.fields}; {MIXED}"
        )


def _check_size(path: Path, size: int) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        raise ShardError(
            f"{path}: the shard cannot be read ({error.strerror}); restore it, or pack again"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise ShardError(f"{path}: the shard is not a regular file; restore it, or pack again")
    if status.st_size != size:
        raise ShardError(
            f"{path}: {status.st_size} bytes, the manifest states {size}; restore it, or pack again"
        )
