"""Tars and packed data sets as sources: what was in them is packed, or named."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import webdataset
from packing import KINDS, content, load, picture, twenty
from source_files import Found, interrupt, packed

import fastdata as fd
from fastdata.converters import pack_run
from fastdata.converters.estimate import estimate_pack
from fastdata.converters.images.coding import Coding
from fastdata.converters.pack import pack
from fastdata.converters.sources.listing import Skipped
from fastdata.converters.sources.open import Selection
from fastdata.converters.stages import read_all
from fastdata.errors import ManifestError, OptionError, ShardError, SourceError

# webdataset leaves its own files to be closed whenever
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

SIZE = 12_000


def write(folder: Path, count: int = 9, label: str = "cls") -> Path:
    """Shards as webdataset writes them, three samples each."""
    folder.mkdir(parents=True)
    with webdataset.ShardWriter(f"{folder}/set-%04d.tar", maxcount=3, verbose=0) as sink:
        for number in range(count):
            sink.write(
                {
                    "__key__": f"{'ab'[number % 2]}/{number}",
                    "jpg": picture(number),
                    label: str(number % 3) if label == "txt" else number % 3,
                    "json": {"number": number},
                    "seg.png": picture(number, "PNG"),
                }
            )
    return folder


@KINDS
def test_shards_of_webdataset_are_packed(tmp_path: Path, name: str) -> None:
    """Keys, images, labels and all further members are those that webdataset reads."""
    source = write(tmp_path / "src")

    report, found = packed(source, tmp_path / name)

    assert report.samples == 9
    theirs = webdataset.WebDataset(
        [str(path) for path in sorted(source.glob("*.tar"))], shardshuffle=False, empty_check=False
    )
    assert found == sorted(
        Found(
            sample["__key__"],
            sample["cls"].decode(),
            sample["jpg"],
            {"json": sample["json"], "seg_png": sample["seg.png"]},
        )
        for sample in theirs
    )


def test_one_tar_or_a_pattern_is_a_source_too(tmp_path: Path) -> None:
    """A file alone holds its samples, and a pattern those of all files that match."""
    source = write(tmp_path / "src")

    _, one = packed(source / "set-0001.tar", tmp_path / "one")
    _, two = packed(f"{source}/set-000[12].tar", tmp_path / "two")

    assert [sample.key for sample in one] == ["a/4", "b/3", "b/5"]
    assert {sample.key.partition("/")[2] for sample in two} == set("345678")


def test_members_are_chosen_by_name(tmp_path: Path) -> None:
    """Columns say which member is the image and which the label; fields which others are kept."""
    source = write(tmp_path / "src", label="txt")

    _, found = packed(
        source,
        tmp_path / "out",
        columns={"image": "seg.png", "label": "txt"},
        fields=("json",),
    )

    assert [sample.image for sample in found] == [picture(int(s.key[2:]), "PNG") for s in found]
    assert [sample.label for sample in found] == [str(int(s.key[2:]) % 3) for s in found]
    assert {tuple(sample.fields) for sample in found} == {("json",)}


def tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    """A tar by the standard library."""
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_labels_may_be_names_and_samples_may_lack_them(tmp_path: Path) -> None:
    """A .cls that holds text is the name of a class; a sample without one has no label."""
    members = [("x.jpg", picture(0)), ("x.cls", b"dog\n"), ("y.jpg", picture(1)), ("z.cls", b"cat")]

    report, found = packed(tar(tmp_path / "t.tar", members), tmp_path / "out")

    assert [(sample.key, sample.label) for sample in found] == [("x", "dog"), ("y", None)]
    assert report.skipped == (Skipped("z", "no image among its members"),)


def test_keys_of_two_tars_that_are_equal_get_numbers(tmp_path: Path) -> None:
    """Shards that each count from zero do not lose a sample: later ones get -2."""
    for name in "ab":
        tar(tmp_path / f"{name}.tar", [("0.jpg", picture(ord(name))), ("1.jpg", picture(1))])

    _, found = packed(tmp_path / "*.tar", tmp_path / "out")

    images = {sample.key: sample.image for sample in found}
    assert sorted(images) == ["0", "0-2", "1", "1-2"]
    assert images["0"] == picture(ord("a"))


@KINDS
def test_a_pack_of_tars_continues_where_it_was_stopped(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted and run again, it ends with the bytes of one that never stopped."""
    source = pack(twenty(tmp_path / "images"), tmp_path / "first").path
    whole = pack(source, tmp_path / "whole" / name, shard_size=SIZE)
    interrupt(monkeypatch, 14, source, tmp_path / name, shard_size=SIZE)

    report = pack(source, tmp_path / name, shard_size=SIZE, workers=2)

    assert report.resumed > 0
    assert content(tmp_path / name) == content(whole.path)


def test_a_damaged_tar_is_an_error(tmp_path: Path) -> None:
    """A header with a wrong checksum ends the pack before it begins, with its place."""
    source = write(tmp_path / "src")
    data = bytearray((source / "set-0001.tar").read_bytes())
    data[3] ^= 1
    (source / "set-0001.tar").write_bytes(data)

    with pytest.raises(ShardError, match=r"set-0001.tar: at byte 0: .*checksum"):
        pack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tar_that_changes_meanwhile_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes between listing and reading is left out and named, never torn."""
    source = write(tmp_path / "src")
    real = read_all

    def late(*args: object) -> object:
        os.utime(source / "set-0001.tar", (1, 1))
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(pack_run, "read_all", late)
    report = pack(source, tmp_path / "out")

    assert report.samples == 6
    assert {reason for _, reason in report.skipped} == {"changed while it was read"}


@KINDS
def test_a_packed_data_set_packs_to_itself(tmp_path: Path, name: str) -> None:
    """From tars to LMDB and back nothing changes: ids, keys, labels, fields, bytes of shards."""
    images = twenty(tmp_path / "images")
    (images / "a/0.txt").write_text("a field")
    (images / "empty").mkdir()
    first = pack(images, tmp_path / "x" / name, fields=("txt",), shard_size=SIZE)
    options: Any = {"shuffle": False, "keep_bytes": True, "shard_size": SIZE}
    other = "one.lmdb" if name == "shards" else "shards"

    between = fd.pack(first.path, tmp_path / "y" / other, **options)
    again = fd.pack(between.path, tmp_path / "z" / name, **options)

    for report in (between, again):
        assert load(report.path).classes == ("a", "b", "empty")
        assert [*fd.open(report.path, decode=False)] == [*fd.open(first.path, decode=False)]
    if name == "shards":
        one, two = content(first.path), content(again.path)
        assert {n: one[n] for n in one if "shard-" in n} == {
            n: two[n] for n in two if "shard-" in n
        }


def test_damage_in_a_packed_source_is_found(tmp_path: Path) -> None:
    """A sample whose bytes are not those of the catalog is left out and named."""
    source = pack(twenty(tmp_path / "images"), tmp_path / "first", shuffle=False).path
    shard = source / "shard-000000.tar"
    data = bytearray(shard.read_bytes())
    data[1500] ^= 1
    shard.write_bytes(data)

    report = pack(source, tmp_path / "out")

    assert report.skipped == (
        Skipped("a/0.jpg", "unreadable: its bytes do not match their CRC32C"),
    )


def test_an_unfinished_pack_is_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole shards are not all of it, so they are not taken for tars of another tool."""
    images = twenty(tmp_path / "images")
    interrupt(monkeypatch, 14, images, tmp_path / "first", shard_size=SIZE)

    with pytest.raises(ManifestError, match="unfinished pack"):
        pack(tmp_path / "first", tmp_path / "out")


def test_split_limit_dedupe_and_classes_work_on_any_source(tmp_path: Path) -> None:
    """What chooses among files of a folder chooses among samples of a tar."""
    source = write(tmp_path / "src")
    tar(source / "set-9999.tar", [("again.jpg", picture(0)), ("again.cls", b"0")])
    (tmp_path / "classes.txt").write_text("x\ny\nz\n")

    report, found = packed(source, tmp_path / "d", dedupe=True, classes=tmp_path / "classes.txt")
    assert report.skipped == (Skipped("again.jpg", "duplicate: a/0.jpg"),)
    assert [s.label for s in found] == ["xyz"[int(s.key[2:]) % 3] for s in found]
    assert pack(source, tmp_path / "l", limit=4).samples == 4
    parts = pack(source, tmp_path / "s", split="p=0.5,q=0.5").parts
    assert sum(part.samples for part in parts.values()) == 10
    assert estimate_pack(source, Selection(), Coding()).samples == 10


def test_what_is_two_things_must_be_said(tmp_path: Path) -> None:
    """Tars beside folders or images are an error that names both ways out."""
    source = write(tmp_path / "src")
    (source / "zoo").mkdir()
    (source / "zoo/1.jpg").write_bytes(picture(1))

    with pytest.raises(SourceError, match=r"--from webdataset or --from folder"):
        pack(source, tmp_path / "out")
    assert pack(source, tmp_path / "tars", kind="webdataset").samples == 9
    assert pack(source, tmp_path / "images", kind="folder").samples == 1
    with pytest.raises(OptionError, match=r"one of folder, packed, .*found 'zip'"):
        pack(source, tmp_path / "out", kind="zip")


def test_parts_of_two_splits_are_not_mixed(tmp_path: Path) -> None:
    """Files called train-00000-of-00001 and val-00000-of-00001 are two data sets."""
    for name in ("train", "val"):
        tar(tmp_path / f"{name}-00000-of-00001.tar", [("0.jpg", picture(0))])

    with pytest.raises(SourceError, match=r"parts of train, val; choose one .*train-\*'"):
        pack(tmp_path, tmp_path.parent / "out")
    _, found = packed(tmp_path / "val-*", tmp_path / "out")
    assert [(sample.key, sample.image) for sample in found] == [("0", picture(0))]


def test_the_destination_may_not_lie_within_the_source(tmp_path: Path) -> None:
    """The next pack of a folder of tars would read what this one writes."""
    source = write(tmp_path / "src")

    with pytest.raises(fd.errors.DestinationError, match="inside the source"):
        pack(source, source / "out")
