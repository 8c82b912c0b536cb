"""The LMDB file is a plain one, which the lmdb module reads and changes; bytes are reproducible."""

import hashlib
import os
import struct
from pathlib import Path

import lmdb
import numpy as np
import pytest
from lmdb_files import BORDERS, add, finish, manifest, read, sha256, sizes, value, write, writer

from fastdata.converters.destination import Item
from fastdata.converters.lmdb.tree import Leaves
from fastdata.dataset.catalog.builder import CatalogBuilder, CatalogRow
from fastdata.dataset.catalog.part import in_memory
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.lmdb.format import part_key, sample_key
from fastdata.dataset.lmdb.page import Page
from fastdata.errors import DestinationError, ShardError
from fastdata.system.checksum import crc32c


def test_lmdb_reads_values_by_id(tmp_path: Path) -> None:
    """Keys are ids in 8 bytes, big-endian, in order; values of all sizes come back."""
    wanted = [1, 100, 3000, 1_000_000, *BORDERS, *[50] * 300]
    groups = write(tmp_path / "a.lmdb", wanted)

    entries = read(tmp_path / "a.lmdb")

    assert list(entries)[:-2] == [i.to_bytes(8, "big") for i in range(len(wanted))]
    assert b"fastdata:catalog" in entries
    assert entries[b"fastdata:manifest"].startswith(manifest(groups)[:20])
    assert [entries[sample_key(i)] for i in range(len(wanted))] == [
        value(i, size) for i, size in enumerate(wanted)
    ]


def test_values_lie_where_lmdb_puts_them(tmp_path: Path) -> None:
    """What goes to overflow pages, and how many pages there are, is what LMDB itself chooses."""
    write(tmp_path / "ours.lmdb", BORDERS * 20)
    entries = read(tmp_path / "ours.lmdb")
    path = str(tmp_path / "theirs.lmdb")
    with lmdb.open(path, subdir=False, map_size=1 << 26, lock=False) as env:
        with env.begin(write=True) as txn:
            for key, data in entries.items():
                txn.put(key, data, append=True)
        theirs = env.stat()
    with lmdb.open(str(tmp_path / "ours.lmdb"), subdir=False, readonly=True, lock=False) as env:
        ours = env.stat()
        last = env.info()["last_pgno"]

    # a group begins and ends with a leaf of its own, which LMDB need not
    assert ours["leaf_pages"] - theirs["leaf_pages"] in (0, 1)
    assert {**ours, "leaf_pages": 0} == {**theirs, "leaf_pages": 0}
    pages = ours["leaf_pages"] + ours["branch_pages"] + ours["overflow_pages"]
    assert last + 1 == pages + 2
    assert (tmp_path / "ours.lmdb").stat().st_size == (pages + 2) * 4096 + 64


def test_fields_follow_the_image(tmp_path: Path) -> None:
    """A value is the image and each field, end to end, as the places say."""
    writing = writer(tmp_path / "a.lmdb")
    placed = writing.append(Item(b"k", "jpg", b"image", 0, {"json": b"{}", "txt": b"word"}))
    finish(writing)

    assert read(tmp_path / "a.lmdb")[sample_key(0)] == b"image{}word"
    assert (placed.shard, placed.offset) == (0, 0)
    assert placed.fields == {"json": (5, 2, crc32c(b"{}")), "txt": (7, 4, crc32c(b"word"))}


def test_groups_are_runs_of_pages(tmp_path: Path) -> None:
    """From page 2 on, groups follow each other; each is within its size, and its digest right."""
    wanted = sizes(0, 400)
    groups = write(tmp_path / "a.lmdb", wanted, group=64 << 10)

    data = (tmp_path / "a.lmdb").read_bytes()
    place = 8192
    for number, group in enumerate(groups):
        assert (group.name, group.index) == (f"group-{number:06d}", None)
        assert group.digest == sha256(data[place : place + group.bytes])
        assert group.bytes <= 64 << 10 or group.samples == 1
        place += group.bytes
    assert sum(group.samples for group in groups) == len(wanted)
    assert len(groups) > 20
    # and none could have taken the first sample of the next one
    first = groups[0].samples
    (together,) = write(tmp_path / "b.lmdb", wanted[: first + 1])
    assert together.bytes > 64 << 10


def test_groups_and_seal_cover_every_byte(tmp_path: Path) -> None:
    """The trailer is as docs/format.md has it; it covers all that the groups leave out."""
    groups = write(tmp_path / "a.lmdb", [3000] * 100, group=64 << 10)

    data = (tmp_path / "a.lmdb").read_bytes()
    magic, version, crc, end, size, digest = struct.unpack("<8sII QQ 32s", data[-64:])
    assert (magic, version, size) == (b"\x89FDS\r\n\x1a\n", 1, len(data))
    assert end == 8192 + sum(group.bytes for group in groups)
    covered = data[end:-64] + data[:8192] + data[-48:-32]
    assert digest == hashlib.sha256(covered).digest()
    assert crc == crc32c(data[:8192] + data[-64:-52] + bytes(4) + data[-48:])


@pytest.mark.parametrize("count", [1, 2, 3, 450, 451, 452, 453, 454, 902, 904, 906, 3000])
def test_lmdb_changes_the_file(tmp_path: Path, count: int) -> None:
    """LMDB adds, replaces, deletes entries at will, and copies the file compacted."""
    path = tmp_path / "a.lmdb"
    # two values fill a leaf, so that 226 leaves, a branch page, are soon reached
    write(path, [2000] * count)
    kept = read(path)
    rng = np.random.default_rng(count)
    with lmdb.open(str(path), subdir=False, map_size=1 << 27, lock=False, sync=False) as env:
        env.copy(str(tmp_path / "before"), compact=True)
        assert read(tmp_path / "before") == kept
        for _ in range(3):
            with env.begin(write=True) as txn:
                keys = sorted(kept)
                for place in rng.permutation(len(keys))[: len(keys) // 3]:
                    assert txn.delete(keys[place])
                    del kept[keys[place]]
                for _ in range(100):
                    key = rng.bytes(int(rng.integers(7, 10)))
                    kept[key] = value(1, int(rng.choice([10, 2000, 9000])))
                    txn.put(key, kept[key])
        env.copy(str(tmp_path / "after"), compact=True)
        with env.begin() as txn:
            assert dict(txn.cursor()) == kept
    assert read(tmp_path / "after") == kept


@pytest.mark.parametrize("count", [1, 2, 225, 226, 227, 228, 452, 453, 51_075, 51_076, 51_080])
def test_branches_have_two_children(count: int) -> None:
    """The tree above any number of leaves is whole; no page has one child, which LMDB forbids."""
    first = 5_000_000_000  # page numbers have 48 bits
    below = [(sample_key(7 * number), first + number) for number in range(count - 1)]
    below.append((b"fastdata:catalog", first + count - 1))
    leaves = Leaves()
    for key, number in below:
        leaves.add(key, number)

    number = first + count
    levels = list(leaves.branches(number))

    for level in levels:
        above = []
        children = iter(below)
        for data in level:
            page = Page(data, number, "it")
            assert len(page) >= 2
            taken = [next(children) for _ in page]
            above.append((taken[0][0], number))
            assert [node.number for node in page] == [child for _, child in taken]
            assert [node.key for node in page] == [b"", *(key for key, _ in taken[1:])]
            number += 1
        assert next(children, None) is None
        below = above
    assert len(below) == 1


def test_the_bytes_are_reproducible(tmp_path: Path) -> None:
    """Two runs give one file."""
    for name in ("a.lmdb", "b.lmdb"):
        write(tmp_path / name, sizes(1, 300), group=100_000)
    assert (tmp_path / "a.lmdb").read_bytes() == (tmp_path / "b.lmdb").read_bytes()


def test_the_catalog_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its header and parts are entries; end to end they are what catalog.fdc would hold."""
    monkeypatch.setattr("fastdata.dataset.catalog.builder.PART_ROWS", 4)
    monkeypatch.setattr("fastdata.dataset.catalog.reader.PART_ROWS", 4)
    monkeypatch.setattr("fastdata.dataset.catalog.reader.PART_BITS", 2)
    builder = CatalogBuilder()
    for i in range(10):
        builder.append(
            CatalogRow(b"k%d" % i, b"", 0, i, crc=0, label=0, width=1, height=1, flags=1)
        )
    writing = writer(tmp_path / "a.lmdb")
    groups = writing.finish()

    stored = writing.put_catalog(builder)
    writing.publish(manifest(groups))

    entries = read(tmp_path / "a.lmdb")
    header, *parts = (entries[key] for key in sorted(entries) if key.startswith(b"fastdata:cat"))
    assert [stored.bytes, stored.digest] == [*builder.write(tmp_path / "catalog.fdc")]
    assert header + b"".join(parts) == (tmp_path / "catalog.fdc").read_bytes()
    assert part_key(2) in entries
    opened = Catalog.from_parts(header, lambda number: in_memory(parts[number]), "it")
    assert opened.keys([9, 0]) == ["k9", "k0"]


def test_a_pack_goes_on_behind_its_last_group(tmp_path: Path) -> None:
    """Interrupted behind any group, with anything behind it, it ends with the same bytes."""
    values = [value(i, size) for i, size in enumerate(sizes(2, 60))]
    path = tmp_path / "a.lmdb"
    writing = writer(path, 100_000)
    add(writing, values)
    groups = finish(writing)
    whole = path.read_bytes()
    path.unlink()
    assert len(groups) > 4

    for count in range(len(groups) + 1):
        samples = sum(group.samples for group in groups[:count])
        end = 8192 + sum(group.bytes for group in groups[:count])
        (tmp_path / "a.lmdb.tmp").write_bytes(whole[:end] + b"left over" * 100 * count)
        writing = writer(path, 100_000, groups[:count])
        add(writing, values[samples:])
        assert finish(writing) == groups
        assert path.read_bytes() == whole
        path.unlink()


def test_a_pack_does_not_go_on_behind_damage(tmp_path: Path) -> None:
    """Groups whose pages do not lead to the first one, or hold other samples, are refused."""
    groups = write(tmp_path / "a.lmdb", [3000] * 400, group=400_000)
    whole = (tmp_path / "a.lmdb").read_bytes()
    end = 8192 + sum(group.bytes for group in groups)
    leaf = end - 4096
    tmp = tmp_path / "a.lmdb.tmp"
    for at in (leaf, leaf + 10, leaf + 12, leaf + 16, end - 20, end - 16, end - 8):
        data = bytearray(whole[:end])
        data[at] ^= 0x12
        tmp.write_bytes(data)
        with pytest.raises(ShardError, match=r"--overwrite|a\.lmdb\.tmp"):
            writer(tmp_path / "a.lmdb", 400_000, groups)
    tmp.write_bytes(whole[: end - 1])
    with pytest.raises(ShardError, match="--overwrite"):
        writer(tmp_path / "a.lmdb", 400_000, groups)


def test_abort_leaves_whole_groups_only(tmp_path: Path) -> None:
    """Without one the file goes, also one that an older pack left; with one it stays."""
    (tmp_path / "a.lmdb.tmp").write_bytes(b"left over")
    writing = writer(tmp_path / "a.lmdb")
    writing.append(Item(b"k", "jpg", b"image", 0, {}))
    writing.abort()
    assert os.listdir(tmp_path) == ["a.lmdb.journal"]

    writing = writer(tmp_path / "a.lmdb", 8192)
    add(writing, [b"image" * 1000] * 3)
    assert len(writing.finish()) == 2
    writing.abort()
    assert sorted(os.listdir(tmp_path)) == ["a.lmdb.journal", "a.lmdb.tmp"]


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    """Publishing is one rename."""
    write(tmp_path / "a.lmdb", [1])
    old = (tmp_path / "a.lmdb").read_bytes()
    writing = writer(tmp_path / "a.lmdb")
    add(writing, [b"image" * 100])
    writing.end_shard(b"")
    groups = writing.finish()
    assert (tmp_path / "a.lmdb").read_bytes() == old

    writing.publish(manifest(groups))

    assert read(tmp_path / "a.lmdb")[sample_key(0)] == b"image" * 100


def test_values_over_4_gib_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB has 32 bits for the size of a value; the error says what to do."""
    monkeypatch.setattr("fastdata.converters.lmdb.writer.MAX_VALUE", 10)
    writing = writer(tmp_path / "a.lmdb")
    writing.append(Item(b"k", "jpg", b"0123456789", 0, {}))
    with pytest.raises(DestinationError, match="folder of shards"):
        writing.append(Item(b"k", "jpg", b"0123456789", 0, {"txt": b"1"}))
    writing.abort()
