"""Verify finds every change of every byte of a data set, and names the samples that it hit."""

import dataclasses
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from packing import KINDS, picture
from strides import EVERY

from fastdata.converters.check import verify as verifying
from fastdata.converters.check.verify import verify
from fastdata.converters.pack import pack
from fastdata.converters.problems import Problem
from fastdata.dataset import manifest
from fastdata.errors import CorruptError, NotADatasetError
from fastdata.loaders.readers.packed import LMDBSource, TarSource

IDS = np.arange(10)
Fault = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images in three shards, and a file that was left out."""
    root = tmp_path_factory.mktemp("verify")
    for number in range(10):
        path = root / "source" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    (root / "source/a/no.jpg").write_bytes(b"")
    pack(root / "source", root / "shards", shard_size=12_000, keep_bytes=True)
    pack(root / "source", root / "one.lmdb", shard_size=4_000, keep_bytes=True)
    assert len(list((root / "shards").glob("*.tar"))) == 3
    return root


@pytest.fixture
def shards(packed: Path, tmp_path: Path) -> Path:
    """A copy of the shards that may be damaged."""
    return Path(shutil.copytree(packed / "shards", tmp_path / "shards"))


def problems(path: Path) -> list[Problem]:
    """What verify finds."""
    return list(verify(path).problems)


def flip(place: int, bit: int) -> Fault:
    """Change one bit."""
    return lambda data: data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def cut(place: int) -> Fault:
    """Drop the end."""
    return lambda data: data[:place]


def added(extra: bytes) -> Fault:
    """Add to the end."""
    return lambda data: data + extra


def zeroed(start: int) -> Fault:
    """Lose a block of the disk."""
    return lambda data: data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]


def faults(size: int, seed: str, flips: int) -> Iterator[Fault]:
    """Bit flips, cuts, additions and zeroed stretches, spread over a file of this size."""
    rng = random.Random(seed)  # noqa: S311 (places, no secrets)
    for number in range(flips):
        yield flip(number * size // flips, rng.randrange(8))
    for _ in range(12):
        yield cut(rng.randrange(size))
    for extra in (b"\0", b"x", bytes(512), bytes(4096), bytes(10_240)):
        yield added(extra)
    for _ in range(20):
        yield zeroed(rng.randrange(size))


FILES = {
    "shard-000000.tar": 350,
    "shard-000001.tar": 200,
    "shard-000002.tar": 100,
    "shard-000000.idx": 60,
    "shard-000002.idx": 40,
    "catalog.fdc": 300,
    "dataset.json": 250,
    "skipped.jsonl": 40,
}


@EVERY
@pytest.mark.parametrize("name", FILES)
def test_no_fault_is_silent(name: str, shards: Path, step: int) -> None:
    """Whatever happens to a file, verify reports it, under its name."""
    file = shards / name
    good = file.read_bytes()
    tried = 0
    for fault in faults(len(good), name, FILES[name] // step):
        bad = fault(good)
        if bad == good:  # zeros over zeros
            continue
        file.write_bytes(bad)
        found = problems(shards)
        assert name in {problem.file for problem in found}, (name, tried)
        tried += 1
    file.write_bytes(good)

    assert tried >= FILES[name] // step
    assert problems(shards) == []


def test_a_whole_data_set_has_no_problem(packed: Path) -> None:
    """Nothing is reported where nothing is wrong; all files and samples count."""
    report = verify(packed / "shards")

    assert report.problems == ()
    assert report.samples == 10
    assert report.bytes == sum(
        file.stat().st_size for file in (packed / "shards").iterdir() if file.is_file()
    )


@KINDS
def test_a_link_to_a_data_set_is_followed(packed: Path, tmp_path: Path, name: str) -> None:
    """What lies beside the real file counts, not what lies beside the link."""
    (tmp_path / "link").symlink_to(packed / name)

    assert problems(tmp_path / "link") == []


def test_damaged_samples_are_named(shards: Path) -> None:
    """Exactly the samples whose bytes changed are reported by key, whatever part of them it is."""
    with closing(TarSource(shards)) as source:
        keys = source.keys(IDS)
        rows = source.rows(IDS)
        for number in (0, 4, 9):
            row = rows[number]
            file = shards / source.manifest.shards[row["shard"]].name
            good = file.read_bytes()
            image = int(row["offset"])
            for place in (image, image + int(row["length"]) - 1, image - 512, image - 1):
                file.write_bytes(flip(place, 3)(good))
                found = problems(shards)
                assert {problem.key for problem in found} == {None, keys[number]}
                assert {problem.file for problem in found} == {file.name}
            file.write_bytes(good)


def test_damaged_samples_do_not_load(shards: Path) -> None:
    """A sample whose bytes changed raises when it is read; every other one is as it was."""
    with closing(TarSource(shards)) as source:
        good = [source.read(number) for number in range(10)]
        rows = source.rows(IDS)
    rng = random.Random(0)  # noqa: S311
    for number in [*range(10)] * 3:
        row = rows[number]
        file = shards / f"shard-{int(row['shard']):06d}.tar"
        before = file.read_bytes()
        place = int(row["offset"]) + rng.randrange(int(row["length"]))
        file.write_bytes(flip(place, rng.randrange(8))(before))
        with closing(TarSource(shards)) as source:
            for other in range(10):
                if other != number:
                    assert source.read(other) == good[other]
            with pytest.raises(CorruptError):
                source.read(number)
        file.write_bytes(before)


def test_files_that_are_missing_extra_or_exchanged(shards: Path) -> None:
    """Each is reported under its name, and what an exchanged shard really is."""
    first, second = shards / "shard-000000.tar", shards / "shard-000001.tar"
    first.rename(shards / "spare")
    second.rename(first)
    (shards / "spare").rename(second)
    (shards / "notes.txt").write_text("mine")
    (shards / "more").mkdir()
    (shards / "shard-000007.tar").write_bytes(second.read_bytes())
    (shards / "shard-000002.tar.tmp").write_bytes(b"")
    (shards / "shard-000002.idx").unlink()
    (shards / "skipped.jsonl").unlink()

    found = problems(shards)
    texts = {problem.file: problem.text for problem in found}
    kinds = {problem.file: problem.kind for problem in found}

    assert "the bytes of shard-000001.tar: rename it" in texts.pop(first.name)
    assert "the bytes of shard-000000.tar: rename it" in texts.pop(second.name)
    assert {name: kinds[name] for name in texts} == {
        "notes.txt": "extra",
        "more": "extra",
        "shard-000007.tar": "extra",
        "shard-000002.tar.tmp": "unfinished",
        "shard-000002.idx": "missing",
        "skipped.jsonl": "missing",
    }


@pytest.mark.parametrize("name", ["shard-000001.tar", "shard-000001.idx", "catalog.fdc"])
def test_what_is_no_regular_file(name: str, shards: Path) -> None:
    """A FIFO or a folder in the place of a file is reported; nothing waits for it."""
    (shards / name).unlink()
    os.mkfifo(shards / name)
    if name == "catalog.fdc":
        (shards / name).unlink()
        (shards / name).mkdir()

    assert name in {problem.file for problem in problems(shards)}


@pytest.mark.parametrize("lost", [("dataset.json",), ("dataset.json", "catalog.fdc")])
def test_without_manifest_the_rest_is_looked_at(lost: tuple[str, ...], shards: Path) -> None:
    """A lost manifest is one problem; the catalog, or the tars alone, still show damage."""
    for name in lost:
        (shards / name).unlink()
    assert {problem.file for problem in problems(shards)} == set(lost)

    shard = shards / "shard-000001.tar"
    shard.write_bytes(flip(10, 1)(shard.read_bytes()))

    assert {problem.file for problem in problems(shards)} == {*lost, shard.name}


def test_an_unfinished_pack_is_reported(packed: Path, tmp_path: Path) -> None:
    """It is a problem, in a folder and beside an LMDB."""
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/.pack.journal").write_text("{}")
    (tmp_path / "one.lmdb.tmp").write_bytes(b"")

    assert [problem.kind for problem in problems(tmp_path / "begun")] == ["unfinished"]
    assert [problem.kind for problem in problems(tmp_path / "one.lmdb")] == ["unfinished"]


def test_what_never_was_a_data_set(packed: Path, tmp_path: Path) -> None:
    """It is not called damaged."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "json").mkdir()
    (tmp_path / "json/dataset.json").write_text('{"mine": 1}')
    for path in (packed / "source", tmp_path / "json", tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(NotADatasetError):
            verify(path)


def test_a_manifest_of_elsewhere_opens_nothing(shards: Path) -> None:
    """Names of shards that lead out of the folder are a damaged manifest."""
    text = (shards / "dataset.json").read_text()
    (shards / "dataset.json").write_text(text.replace("shard-000001.tar", "../shard-000001.tar"))

    assert "dataset.json" in {problem.file for problem in problems(shards)}


@KINDS
def test_progress_counts_to_the_end(packed: Path, name: str) -> None:
    """The last call says that all is done."""
    calls: list[tuple[int, int]] = []
    verify(packed / name, lambda _, done, total: calls.append((done, total)))

    assert calls[-1][0] == calls[-1][1] > 0
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


@EVERY
def test_no_fault_of_an_lmdb_is_silent(packed: Path, tmp_path: Path, step: int) -> None:
    """Nor in an LMDB file: values, pages, tree, catalog, manifest, seal."""
    file = tmp_path / "one.lmdb"
    good = (packed / "one.lmdb").read_bytes()
    shutil.copy(packed / "one.lmdb.skipped.jsonl", tmp_path)
    file.write_bytes(good)
    assert problems(file) == []
    for number, fault in enumerate(faults(len(good), "lmdb", 400 // step)):
        bad = fault(good)
        if bad != good:
            file.write_bytes(bad)
            try:
                found = problems(file)
            except NotADatasetError:  # nothing of it is left
                assert len(bad) < 4096, number
            else:
                assert found, number


def test_damaged_samples_of_an_lmdb_are_named(packed: Path, tmp_path: Path) -> None:
    """Exactly the sample whose value changed is reported by key; the report beside it counts."""
    file = tmp_path / "one.lmdb"
    good = (packed / "one.lmdb").read_bytes()
    report = Path(shutil.copy(packed / "one.lmdb.skipped.jsonl", tmp_path))
    with closing(LMDBSource(packed / "one.lmdb")) as source:
        keys = source.keys(IDS)
        images = [source.read(number) for number in range(10)]
    for key, image in zip(keys, images, strict=True):
        file.write_bytes(flip(good.index(image) + 20, 1)(good))
        assert {problem.key for problem in problems(file)} == {None, key}
    file.write_bytes(good)
    report.write_bytes(b"")
    (tmp_path / "one.lmdb.journal").write_bytes(b"")

    assert {(problem.kind, problem.file) for problem in problems(file)} == {
        ("truncated", report.name),
        ("unfinished", "one.lmdb.journal"),
    }


class _Counted(int):
    """A number that counts how often it was added."""

    additions = 0

    def __radd__(self, other: int) -> int:
        _Counted.additions += 1
        return other + int(self)


def test_many_shards_are_verified_in_linear_time_and_shown_from_the_start(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes are added up once, whatever the number of shards, and progress begins with none."""
    copy = tmp_path / "set"
    shutil.copytree(shards, copy)
    whole, many = manifest.load(copy), 300
    stated = tuple(
        dataclasses.replace(shard, name=f"{number}.tar", bytes=_Counted(shard.bytes))
        for number in range(many)
        for shard in whole.shards[:1]
    )
    found = dataclasses.replace(whole, shards=stated)
    monkeypatch.setattr(verifying, "open_manifest", lambda _: (found, []))
    steps: list[tuple[int, int]] = []

    report = verify(copy, lambda _, done, total: steps.append((done, total)))

    assert len(report.problems) > many
    total = many * whole.shards[0].bytes
    assert steps[0] == (0, total)
    assert steps[-1] == (total, total)
    assert _Counted.additions <= 3 * many
