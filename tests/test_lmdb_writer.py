"""The LMDB file is a plain one: the lmdb module alone reads it, and its bytes are reproducible."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from fastdata import manifest
from fastdata.catalog import Catalog
from fastdata.catalog_builder import CatalogBuilder
from fastdata.checksum import crc32c
from fastdata.converters import lmdb_writer
from fastdata.converters.lmdb_writer import LmdbWriter
from fastdata.converters.writer import Item
from fastdata.errors import ManifestError, NotADatasetError, ShardError
from fastdata.lmdb_file import check_size, open_file, part_key, read_manifest, sample_key

MANIFEST = manifest.Manifest(
    kind="lmdb",
    samples=0,
    classes=(),
    class_counts=(),
    fields=(),
    options={},
    source="sha256:" + "0" * 64,
    skipped={},
    report=None,
    kept={},
    noted={},
    shards=(),
    catalog=manifest.Stored(0, "sha256:" + "0" * 64),
    fingerprint="sha256:" + "0" * 64,
).encode()

REPEAT = """
import sys
from pathlib import Path
from fastdata.converters.lmdb_writer import LmdbWriter
from fastdata.converters.writer import Item
writer = LmdbWriter(Path(sys.argv[1]), 100_000)
for i in range(3000):
    writer.append(Item(b"k", "jpg", bytes([i % 251]) * (i * 7919 % 3000), 0, {}))
writer.finish()
writer.publish(b"{}")
"""


def value(number: int, size: int = 100) -> bytes:
    """Bytes that tell their number."""
    return (b"%08d" % number * (size // 8 + 1))[:size]


def write(path: Path, sizes: list[int], group: int = 1 << 30) -> tuple[manifest.Shard, ...]:
    """Writes values of these sizes."""
    writer = LmdbWriter(path, group)
    for number, size in enumerate(sizes):
        writer.append(Item(b"k%d" % number, "jpg", value(number, size), 0, {}))
    groups = writer.finish()
    writer.publish(MANIFEST)
    return groups


def read(path: Path) -> dict[bytes, bytes]:
    """Every entry in the order of the keys, by the lmdb module alone."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        return dict(txn.cursor())


def test_lmdb_reads_values_by_id(tmp_path: Path) -> None:
    """Keys are ids in 8 bytes, big-endian, in order; small, large and huge values come back."""
    sizes = [1, 100, 2000, 3000, 5000, 100_000, 0, 1_000_000, *[50] * 300]
    write(tmp_path / "a.lmdb", sizes)

    entries = read(tmp_path / "a.lmdb")

    assert list(entries)[:-1] == [i.to_bytes(8, "big") for i in range(len(sizes))]
    assert entries.pop(b"fastdata:manifest") == MANIFEST
    assert list(entries.values()) == [value(i, size) for i, size in enumerate(sizes)]
    assert os.listdir(tmp_path) == ["a.lmdb"]


def test_fields_follow_the_image(tmp_path: Path) -> None:
    """A value is the image and each field, end to end, as the places say."""
    writer = LmdbWriter(tmp_path / "a.lmdb", 10)
    placed = writer.append(Item(b"k", "jpg", b"image", 0, {"json": b"{}", "txt": b"word"}))
    writer.finish()
    writer.publish(MANIFEST)

    assert read(tmp_path / "a.lmdb")[sample_key(0)] == b"image{}word"
    assert placed.offset == 0
    assert placed.fields == {"json": (5, 2, crc32c(b"{}")), "txt": (7, 4, crc32c(b"word"))}


def test_groups_stand_for_shards(tmp_path: Path) -> None:
    """A group closes before it would exceed its size; its digest is over its values in order."""
    sizes = [40, 40, 40, 300, 10]

    groups = write(tmp_path / "a.lmdb", sizes, group=100)

    assert [(group.samples, group.bytes) for group in groups] == [
        (2, 80),
        (1, 40),
        (1, 300),
        (1, 10),
    ]
    joined = value(0, 40) + value(1, 40)
    assert groups[0].digest == f"sha256:{hashlib.sha256(joined).hexdigest()}"
    assert [group.name for group in groups[:2]] == ["group-000000", "group-000001"]
    assert groups[0].index is None


def test_the_file_ends_with_its_last_page(tmp_path: Path) -> None:
    """There is no slack: the size is what the meta page states, over many commits too."""
    write(tmp_path / "a.lmdb", [3000] * 500, group=20_000)

    with lmdb.open(str(tmp_path / "a.lmdb"), subdir=False, readonly=True, lock=False) as env:
        stated = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    assert (tmp_path / "a.lmdb").stat().st_size == stated
    assert stated < 500 * 4096 * 1.1


def test_the_map_grows_with_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file far larger than the first map is written without an error."""
    monkeypatch.setattr(lmdb_writer, "_FIRST_MAP", 1 << 16)
    monkeypatch.setattr(lmdb_writer, "_MARGIN", 1 << 16)
    monkeypatch.setattr(lmdb_writer, "_COMMIT_BYTES", 1 << 16)

    write(tmp_path / "a.lmdb", [10_000, 1, 4000, 70_000] * 100)

    assert len(read(tmp_path / "a.lmdb")) == 401


def test_the_bytes_are_reproducible(tmp_path: Path) -> None:
    """Two runs give one file, whatever fresh memory holds (MALLOC_PERTURB_ fills it)."""
    digests = set()
    for perturb in ("0", "85", "170"):
        path = tmp_path / f"{perturb}.lmdb"
        env = {**os.environ, "MALLOC_PERTURB_": perturb}
        subprocess.run([sys.executable, "-c", REPEAT, str(path)], env=env, check=True)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())

    assert len(digests) == 1


def test_the_catalog_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its header and parts are entries; end to end they are what catalog.fdc would hold."""
    monkeypatch.setattr("fastdata.catalog_builder.PART_ROWS", 4)
    monkeypatch.setattr("fastdata.catalog_format.PART_ROWS", 4)
    monkeypatch.setattr("fastdata.catalog.PART_BITS", 2)
    builder = CatalogBuilder()
    for i in range(10):
        builder.append(
            b"k%d" % i, b"", offset=0, length=i, crc=0, shard=0, label=0, width=1, height=1, flags=1
        )
    writer = LmdbWriter(tmp_path / "a.lmdb", 100)
    writer.finish()

    stored = writer.put_catalog(builder)
    writer.publish(MANIFEST)

    entries = read(tmp_path / "a.lmdb")
    header, *parts = (entries[key] for key in sorted(entries) if key.startswith(b"fastdata:cat"))
    assert [stored.bytes, stored.digest] == [*builder.write(tmp_path / "catalog.fdc")]
    assert header + b"".join(parts) == (tmp_path / "catalog.fdc").read_bytes()
    assert part_key(2) in entries
    opened = Catalog.from_parts(header, lambda number: memoryview(parts[number]), "it")
    assert opened.keys([9, 0]) == ["k9", "k0"]


def test_abort_leaves_nothing(tmp_path: Path) -> None:
    """Neither the file nor a temporary one, also in place of one that an older pack left."""
    (tmp_path / "a.lmdb.tmp").write_bytes(b"left over")
    writer = LmdbWriter(tmp_path / "a.lmdb", 100)
    writer.append(Item(b"k", "jpg", b"image", 0, {}))

    writer.abort()

    assert os.listdir(tmp_path) == []


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    """Publishing is one rename."""
    write(tmp_path / "a.lmdb", [1])
    old = (tmp_path / "a.lmdb").read_bytes()
    writer = LmdbWriter(tmp_path / "a.lmdb", 100)
    writer.append(Item(b"k", "jpg", b"image" * 100, 0, {}))
    writer.finish()
    assert (tmp_path / "a.lmdb").read_bytes() == old

    writer.publish(MANIFEST)

    assert read(tmp_path / "a.lmdb")[sample_key(0)] == b"image" * 100


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    """It is told before the file is mapped, where a read past its end would kill the process."""
    path = tmp_path / "a.lmdb"
    write(path, [3000] * 20)
    good = path.read_bytes()
    assert read_manifest(open_file(path)).encode() == MANIFEST

    for length in (*range(0, len(good), 1023), len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises((ShardError, NotADatasetError)):
            check_size(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(ShardError, match="states"):
        read_manifest(open_file(path))


def test_other_files_are_no_data_sets(tmp_path: Path) -> None:
    """Nothing, a folder, a text, another's LMDB, and an unfinished pack get their own words."""
    path = tmp_path / "a.lmdb"
    with pytest.raises(NotADatasetError, match="no such"):
        open_file(path)
    with pytest.raises(NotADatasetError, match="cannot read"):
        open_file(tmp_path)
    path.write_bytes(b"text" * 10_000)
    with pytest.raises(NotADatasetError, match="not an LMDB"):
        open_file(path)
    path.unlink()
    with lmdb.open(str(path), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    with pytest.raises(NotADatasetError, match="not one that fastdata packed"):
        read_manifest(open_file(path))
    path.rename(tmp_path / "b.lmdb.tmp")
    with pytest.raises(ManifestError, match="unfinished"):
        open_file(tmp_path / "b.lmdb")
