"""Samples that Python gives: data sets of torchvision, and whatever else can be iterated over."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torchvision
from packing import KINDS, content, load, picture
from PIL import Image
from source_files import Found, expected, interrupt, packed, pixels_of
from typer.testing import CliRunner

import fastdata as fd
from fastdata.cli.commands import app
from fastdata.converters.estimate import estimate_pack
from fastdata.converters.images.coding import Coding
from fastdata.converters.sources import spool
from fastdata.converters.sources.open import Selection
from fastdata.errors import DestinationError, OptionError, SourceError


def pairs(count: int = 9) -> Iterator[tuple[bytes, int]]:
    """Pictures and their labels, once."""
    return ((picture(number), number % 3) for number in range(count))


@KINDS
def test_pairs_are_packed(tmp_path: Path, name: str) -> None:
    """Bytes and labels of a generator are packed under its numbers, shuffled as any source."""
    report, found = packed(pairs(), tmp_path / name)

    assert found == expected(9)
    assert report.skipped == ()
    assert [s.key for s in fd.open(tmp_path / name)] != sorted(sample.key for sample in found)


@KINDS
def test_a_pack_of_samples_continues_where_it_was_stopped(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same samples again go on behind the last whole shard, and end with the same bytes."""
    fd.pack(pairs(30), tmp_path / "whole" / name, shard_size=8000)
    interrupt(monkeypatch, 20, pairs(30), tmp_path / name, shard_size=8000)

    report = fd.pack(pairs(30), tmp_path / name, shard_size=8000)

    assert report.resumed > 0
    assert content(tmp_path / name) == content(tmp_path / "whole" / name)
    with pytest.raises(DestinationError, match="packed from another source"):
        fd.pack(pairs(29), tmp_path / name, shard_size=8000)


def test_data_sets_of_torchvision_are_packed(tmp_path: Path) -> None:
    """Pixels, labels and names of classes are those of the data set itself."""
    theirs = torchvision.datasets.FakeData(5, (3, 6, 4), num_classes=3)

    report, found = packed(theirs, tmp_path / "out")

    for sample, (image, label) in zip(found, (theirs[i] for i in range(5)), strict=True):
        assert np.array_equal(pixels_of(sample.image), np.asarray(image))
        assert sample.label == str(int(label))
    assert report.skipped == ()


def test_files_of_an_image_folder_are_packed_as_they_are(folder: Path, tmp_path: Path) -> None:
    """Pairs of path and label keep the bytes of files, which decoded images have lost."""
    theirs = torchvision.datasets.ImageFolder(str(folder))

    _, found = packed(theirs.samples, tmp_path / "out")

    assert [sample.image for sample in found] == [
        Path(path).read_bytes() for path, _ in sorted(theirs.samples)
    ]


class Named:
    """A data set of torch's kind: numbers, no iteration, no IndexError, and names of classes."""

    classes = ("ant", "bee")

    def __len__(self) -> int:
        """Number of samples."""
        return 4

    def __getitem__(self, number: int) -> tuple[Image.Image, int]:
        """A sample, whatever the number."""
        return Image.new("L", (5, 4), number * 9), number % 2


def test_what_has_numbers_needs_no_iteration(tmp_path: Path) -> None:
    """A data set that never raises IndexError ends at its length; its classes have names."""
    report, found = packed(Named(), tmp_path / "out", format="png")

    assert load(report.path).classes == ("ant", "bee")
    assert [s.label for s in found] == ["ant", "bee", "ant", "bee"]
    for number, sample in enumerate(found):
        assert np.array_equal(pixels_of(sample.image), np.full((4, 5, 3), number * 9))


def test_mappings_name_what_they_hold(tmp_path: Path) -> None:
    """Entries are found by their usual names; others become fields where they are asked for."""
    samples = [
        {"image": picture(i), "label": "xy"[i % 2], "__key__": f"k.{i}", "boxes": [[i, 1.5]]}
        for i in range(4)
    ]

    _, found = packed(samples, tmp_path / "out", fields=("boxes",))

    assert found == [
        Found(f"k_{i}", "xy"[i % 2], picture(i), {"boxes": b"[[%d,1.5]]" % i}) for i in range(4)
    ]


def test_rows_of_hugging_face_are_mappings(tmp_path: Path) -> None:
    """With decode=False the bytes stay as they are; decoded they are pixels."""
    made = datasets.Dataset.from_dict(
        {
            "image": [{"bytes": picture(i, "PNG"), "path": None} for i in range(3)],
            "label": [0, 1, 0],
        },
        datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=["n", "y"])}
        ),
    )

    _, whole = packed(made.cast_column("image", datasets.Image(decode=False)), tmp_path / "a")
    _, decoded = packed(made, tmp_path / "b")

    assert [sample.image for sample in whole] == [picture(i, "PNG") for i in range(3)]
    for one, two in zip(whole, decoded, strict=True):
        assert np.array_equal(pixels_of(one.image), pixels_of(two.image))
    assert [sample.label for sample in whole] == ["n", "y", "n"]


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (None, "no image"),
        (b"", "empty file"),
        (np.zeros((3, 8, 8), np.uint8), "found ndarray of uint8 (3, 8, 8)"),
        (np.zeros((8, 8, 3)), "found ndarray of float64 (8, 8, 3)"),
        ("none/such.jpg", "vanished"),
        (object(), "found object of object ()"),
    ],
)
def test_what_is_no_image_is_left_out(tmp_path: Path, image: Any, reason: str) -> None:
    """Arrays of another layout, floats, nothing, and files that are not there are named."""
    report = fd.pack([(picture(0), 0), (image, 1)], tmp_path / "out")

    assert report.samples == 1
    (entry,) = report.skipped
    assert reason in entry.reason


def test_samples_of_two_kinds_are_refused(tmp_path: Path) -> None:
    """Mixed kinds, parts that have no name, and options that mean nothing are errors."""
    for samples, error, rule in (
        ([(picture(0), 0), {"image": picture(1)}], SourceError, "found a mapping after a pair"),
        ([(picture(0), 0, 0)], SourceError, "a sample of 3 parts: give pairs"),
        ([{"image": picture(0)}, {"x": 1}], SourceError, "a sample without 'image'"),
        ([], SourceError, "samples of list: holds no image"),
    ):
        with pytest.raises(error, match=rule):
            fd.pack(samples, tmp_path / "out")
    with pytest.raises(OptionError, match="columns and fields need mappings, found pairs"):
        fd.pack(pairs(), tmp_path / "out", fields=("boxes",))
    with pytest.raises(OptionError, match="needs a path as the source, found samples"):
        fd.pack(pairs(), tmp_path / "out", kind="folder")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("column", ["key", "label", "caption"])
def test_text_with_half_a_character_is_refused(tmp_path: Path, column: str) -> None:
    """A lone surrogate can be in no name, label or field of a data set."""
    sample = {"image": picture(0), "key": "a", "label": "b", "caption": "c", column: "x\ud800"}

    with pytest.raises(SourceError, match="half a character"):
        fd.pack([sample], tmp_path / "out", fields=("caption",))


def test_names_never_lead_out_and_never_clash(tmp_path: Path) -> None:
    """Names are data: parts that lead upwards are dropped, equal ones get numbers."""
    names = ["../../a", "/a", "a\0b", "", "__x__/a", "x.0001", "x.0002"]
    samples = [{"image": picture(i), "key": name} for i, name in enumerate(names)]

    _, found = packed(samples, tmp_path / "out")

    keys = {sample.image: sample.key for sample in found}
    assert [keys[picture(i)] for i in range(7)] == [
        *("a", "a-2", "a_b", "00000003", "_x__/a", "x_0001", "x_0002")
    ]


def test_an_exception_of_the_samples_comes_through(tmp_path: Path) -> None:
    """What a generator raises is not ours to hide, and nothing is left behind."""

    def broken() -> Iterator[tuple[bytes, int]]:
        yield picture(0), 0
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fd.pack(broken(), tmp_path / "new" / "out")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the copy has no room, its folder and the reason are named, and it is gone."""

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spool, "write_all", full)

    with pytest.raises(DestinationError, match=r"No space left on device; .* needs room"):
        fd.pack(pairs(), tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_the_command_line_says_kind_and_columns(tmp_path: Path) -> None:
    """--from, --column and --fields reach the pack; a pair that is none is a usage error."""
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["p"] = np.zeros((3, 4, 5, 3), np.uint8)
        file["c"] = [0, 1, 0]
        file["note"] = [7, 8, 9]
    arguments = ["pack", str(tmp_path / "a.h5"), str(tmp_path / "out"), "--from", "hdf5"]
    columns = ["--column", "image=p", "--column", "label=c", "--fields", "note"]

    done = CliRunner().invoke(app, [*arguments, *columns])
    wrong = CliRunner().invoke(app, [*arguments, "--column", "image"])

    assert done.exit_code == 0, done.output
    assert sorted(s.fields["note"] for s in fd.open(tmp_path / "out")) == [b"7", b"8", b"9"]
    assert wrong.exit_code == 2
    assert "not of the form image=NAME" in wrong.output


def test_a_dry_run_of_samples_writes_nothing(tmp_path: Path) -> None:
    """An estimate counts what it was given, and the one skipped."""
    plan = estimate_pack([*pairs(), (None, 0)], Selection(), Coding(run_pixels=None))

    assert (plan.samples, dict(plan.skipped_counts)) == (9, {"no image": 1})
    assert os.listdir(tmp_path) == []
