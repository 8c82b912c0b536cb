"""Repair restores to the bit what the catalog, or the source, still implies."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from packing import content, picture

from fastdata.converters.check.index import index
from fastdata.converters.check.repair import repair
from fastdata.converters.check.verify import verify
from fastdata.converters.pack import pack
from fastdata.dataset.manifest import load
from fastdata.errors import BusyError, NotADatasetError
from fastdata.system.files import Lock


@pytest.fixture(scope="module", params=[False, True], ids=["coded", "kept"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images in three shards, with names that keys do not tell, and a file left out."""
    root = tmp_path_factory.mktemp("repair")
    names = ["a/0.jpg", "b/1.JPEG", "a/2.x.jpg", "b/3.jpeg", "a/4.jpg", "b/5", "a/6.jpg"]
    for number, name in enumerate([*names, "b/7.jpg", "b/8.jpg", "a/9.jpg"]):
        path = root / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
        if number % 3:
            path.with_suffix(".json").write_text(f"[{number}]")
    (root / "source/a/no.jpg").write_bytes(b"")
    (root / "source/b/text.jpg").write_bytes(b"no image")
    keep = bool(request.param)
    size = 14_000 if keep else 13_000
    pack(root / "source", root / "shards", shard_size=size, keep_bytes=keep, fields=("json", "txt"))
    pack(root / "source", root / "one.lmdb", shard_size=9_000, keep_bytes=keep, fields=("json",))
    assert len(list((root / "shards").glob("*.tar"))) == 3
    return root


@pytest.fixture
def shards(packed: Path, tmp_path: Path) -> Path:
    """A copy of the shards that may be damaged."""
    return Path(shutil.copytree(packed / "shards", tmp_path / "shards"))


def flip(path: Path, place: int, bit: int = 3) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Lose the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def more(path: Path) -> None:
    """Add to the end of a file."""
    path.write_bytes(path.read_bytes() + b"more")


def remove(*paths: Path) -> None:
    """Lose files."""
    for path in paths:
        path.unlink()


def damage_all_kinds(folder: Path) -> None:
    """Everything at once."""
    flip(folder / "shard-000000.tar", 600)
    remove(folder / "shard-000001.tar", folder / "shard-000002.idx")


WITHOUT_SOURCE: dict[str, Callable[[Path], object]] = {
    "tar header": lambda folder: flip(folder / "shard-000000.tar", 5),
    "tar end": lambda folder: flip(folder / "shard-000001.tar", -3),
    "tar longer": lambda folder: more(folder / "shard-000001.tar"),
    "index": lambda folder: flip(folder / "shard-000001.idx", 30),
    "no index": lambda folder: (folder / "shard-000002.idx").unlink(),
    "leftovers": lambda folder: (folder / "shard-000003.tar.tmp").write_bytes(b""),
}


@pytest.mark.parametrize("fault", WITHOUT_SOURCE)
def test_repairs_without_the_source(fault: str, packed: Path, shards: Path) -> None:
    """What follows from the catalog comes back to the bit, and is told."""
    WITHOUT_SOURCE[fault](shards)
    assert verify(shards).problems

    report = repair(shards)

    assert report.fixed
    assert report.remaining == ()
    assert content(shards) == content(packed / "shards")


WITH_SOURCE: dict[str, Callable[[Path], object]] = {
    "image": lambda folder: flip(folder / "shard-000000.tar", 600),
    "cut shard": lambda folder: cut(folder / "shard-000001.tar"),
    "no shard": lambda folder: remove(folder / "shard-000002.tar"),
    "no tars": lambda folder: remove(*folder.glob("*.tar")),
    "all kinds": damage_all_kinds,
}


@pytest.mark.parametrize("fault", WITH_SOURCE)
def test_repairs_with_the_source(fault: str, packed: Path, shards: Path) -> None:
    """What is lost comes from the images that were packed, coded as they were, to the bit."""
    WITH_SOURCE[fault](shards)
    damaged = content(shards)
    without = repair(shards)
    assert without.remaining
    if not without.fixed:
        assert content(shards) == damaged

    report = repair(shards, packed / "source")

    assert report.fixed
    assert report.remaining == ()
    assert content(shards) == content(packed / "shards")


def test_a_changed_source_repairs_nothing_wrong(packed: Path, shards: Path) -> None:
    """An image that is another one now is not taken; the shard stays, the sample is named."""
    shutil.copytree(packed / "source", shards.parent / "source")
    for path in (shards.parent / "source").glob("*/*"):
        path.write_bytes(picture(99))
    flip(shards / "shard-000000.tar", 600)
    before = content(shards)

    report = repair(shards, shards.parent / "source")

    assert report.fixed == ()
    assert [problem.key is None for problem in report.remaining] == [True, False]
    assert content(shards) == before


@pytest.mark.parametrize("name", ["dataset.json", "catalog.fdc"])
@pytest.mark.parametrize("damage", [remove, cut, more])
def test_a_lost_manifest_or_catalog_sends_to_index(
    name: str, damage: Callable[[Path], object], packed: Path, shards: Path
) -> None:
    """Nothing is rebuilt or written; the problem says that index makes new ones, and it does."""
    damage(shards / name)
    before = content(shards)

    report = repair(shards, packed / "source")

    assert report.fixed == ()
    assert [problem.file for problem in report.remaining] == [name]
    assert "`fastdata index` makes a new manifest" in report.remaining[0].text
    assert content(shards) == before
    index(shards)
    assert verify(shards).problems == ()
    assert load(shards).shards == load(packed / "shards").shards


def test_others_files_stay(shards: Path) -> None:
    """What does not belong there is listed, not removed."""
    (shards / "notes.txt").write_text("mine")
    flip(shards / "shard-000001.idx", 10)

    report = repair(shards)

    assert [problem.file for problem in report.remaining] == ["notes.txt"]
    assert (shards / "notes.txt").read_text() == "mine"


def test_refuses(packed: Path, shards: Path) -> None:
    """No data set, no source, or a pack or repair that runs."""
    with pytest.raises(NotADatasetError):
        repair(packed / "source")
    with pytest.raises(NotADatasetError):
        repair(shards, packed / "nowhere")
    flip(shards / "shard-000001.idx", 10)
    with Lock(shards / ".pack.lock", "here"), pytest.raises(BusyError):
        repair(shards)


def test_a_whole_data_set_is_left_alone(shards: Path) -> None:
    """Nothing is written where nothing is wrong."""
    before = {path.name: path.stat().st_mtime_ns for path in shards.iterdir()}
    assert repair(shards) == repair(shards)
    assert repair(shards).fixed == ()
    assert {path.name: path.stat().st_mtime_ns for path in shards.iterdir()} == before


def test_an_interrupted_repair_loses_nothing(
    packed: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at any renaming, it can be run again, and ends as if it had not been stopped."""
    for number in range(3):
        flip(shards / f"shard-{number:06d}.tar", 5)
    remove(shards / "shard-000000.idx", shards / "shard-000001.idx")
    left = 0
    whole = False
    replace = os.replace

    def stopped(old: str, new: str, **folders: int) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        replace(old, new, **folders)

    monkeypatch.setattr(os, "replace", stopped)
    for steps in (0, 1, 0, 1, 2, 5):
        left = steps
        with suppress(KeyboardInterrupt):
            whole = repair(shards).remaining == ()

    assert whole
    assert content(shards) == content(packed / "shards")


@pytest.fixture
def lmdb(packed: Path, tmp_path: Path) -> Path:
    """A copy of the LMDB file that may be damaged, and of the list beside it."""
    shutil.copy(packed / "one.lmdb.skipped.jsonl", tmp_path)
    return Path(shutil.copy(packed / "one.lmdb", tmp_path))


LMDB_FAULTS: dict[str, Callable[[Path], object]] = {
    "leaf": lambda file: flip(file, file.read_bytes().index(bytes(7) + b"\3", 8192) + 7),
    "value": lambda file: flip(file, file.read_bytes().index(b"\xff\xd8\xff") + 30),
    "zeroed page": lambda file: file.write_bytes(
        file.read_bytes()[:8192] + bytes(4096) + file.read_bytes()[12288:]
    ),
    "leftovers": lambda file: file.with_name("one.lmdb.tmp").write_bytes(b"x"),
}


@pytest.mark.parametrize("fault", LMDB_FAULTS)
def test_repairs_an_lmdb(fault: str, packed: Path, lmdb: Path) -> None:
    """Damaged samples come from the source, and the file is the one that was packed."""
    LMDB_FAULTS[fault](lmdb)
    assert verify(lmdb).problems
    if fault != "leftovers":
        assert repair(lmdb).remaining

    report = repair(lmdb, packed / "source")

    assert report.fixed
    assert report.remaining == ()
    assert {path.name for path in lmdb.parent.iterdir()} == {
        lmdb.name,
        f"{lmdb.name}.skipped.jsonl",
    }
    for path in lmdb.parent.iterdir():
        assert path.read_bytes() == (packed / path.name).read_bytes()


TREE_FAULTS: dict[str, Callable[[Path], object]] = {
    "first meta page": lambda file: flip(file, 20),
    "second meta page": lambda file: flip(file, 4096 + 130),
    "seal": lambda file: flip(file, -10),
    "longer": more,
    "cut": cut,
    "root": lambda file: flip(file, file.stat().st_size // 4096 * 4096 - 4096 + 30),
}


@pytest.mark.parametrize("fault", TREE_FAULTS)
def test_a_damaged_tree_of_an_lmdb_is_not_rebuilt(fault: str, packed: Path, lmdb: Path) -> None:
    """The file stays as it is, and the problem says that it must be packed again."""
    TREE_FAULTS[fault](lmdb)
    before = lmdb.read_bytes()

    report = repair(lmdb, packed / "source")

    assert report.fixed == ()
    assert any("pack again" in problem.text for problem in report.remaining)
    assert lmdb.read_bytes() == before
    assert {path.name for path in lmdb.parent.iterdir()} == {
        lmdb.name,
        f"{lmdb.name}.skipped.jsonl",
    }
