"""What the tests of LMDB files share: files of known values, and the lmdb module's view of them."""

import hashlib
from pathlib import Path

import lmdb
import numpy as np

from fastdata.converters.destination import Item
from fastdata.converters.journal import Journal
from fastdata.converters.lmdb.writer import LmdbWriter
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.manifest import Manifest, Shard, Stored

NO_DIGEST = "sha256:" + "0" * 64
BORDERS = [0, 1, 2020, 2021, 2022, 2023, 2024, 4079, 4080, 4081, 8176, 8177, 100_000]
NOTHING = Stored(0, NO_DIGEST)


def value(number: int, size: int = 100) -> bytes:
    """Bytes that tell their number."""
    return (b"%08d" % number * (size // 8 + 1))[:size]


def sizes(seed: int, count: int) -> list[int]:
    """Random sizes of values, those where LMDB's layout changes."""
    return [int(size) for size in np.random.default_rng(seed).choice(BORDERS, count)]


def manifest(groups: tuple[Shard, ...], catalog: Stored = NOTHING) -> bytes:
    """A manifest of these groups."""
    return Manifest(
        kind="lmdb",
        samples=sum(group.samples for group in groups),
        classes=(),
        class_counts=(),
        fields=(),
        options={},
        source=NO_DIGEST,
        skipped={},
        report=None,
        kept={},
        noted={},
        shards=groups,
        catalog=catalog,
        fingerprint=NO_DIGEST,
    ).encode()


def writer(path: Path, group: int = 1 << 30, done: tuple[Shard, ...] = ()) -> LmdbWriter:
    """A writer with a journal beside the file."""
    journal = Journal(path.with_name(f"{path.name}.journal"))
    if not done:
        journal.begin("{}")
    return LmdbWriter(path, group, journal, done)


def add(writing: LmdbWriter, values: list[bytes]) -> None:
    """Append values as samples, in groups as they fit; the last group stays open."""
    for data in values:
        item = Item(b"k", "jpg", data, 0, {})
        writing.append(item, lambda: b"note")


def finish(writing: LmdbWriter) -> tuple[Shard, ...]:
    """End the last group, add an empty catalog and the manifest, publish."""
    writing.end_shard(b"note")
    groups = writing.finish()
    writing.publish(manifest(groups, writing.put_catalog(CatalogBuilder())))
    return groups


def write(path: Path, wanted: list[int], group: int = 1 << 30) -> tuple[Shard, ...]:
    """Write values of these sizes."""
    writing = writer(path, group)
    add(writing, [value(number, size) for number, size in enumerate(wanted)])
    return finish(writing)


def read(path: Path) -> dict[bytes, bytes]:
    """Every entry in the order of the keys, by the lmdb module alone."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        return dict(txn.cursor())


def sha256(data: bytes) -> str:
    """A digest as manifests have it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
