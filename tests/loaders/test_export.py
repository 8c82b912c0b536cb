"""An export is the image folder that was packed, as far as a folder can be; nothing is lost."""

import errno
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing import KINDS, originals, picture, samples
from PIL import Image

from fastdata.converters.check.index import index
from fastdata.converters.pack import pack
from fastdata.errors import BusyError, DestinationError, NotADatasetError, SampleError
from fastdata.loaders.export import export
from fastdata.loaders.readers.open_source import open_source
from fastdata.system.files import Lock


@KINDS
def test_an_export_is_the_folder_that_was_packed(source: Path, tmp_path: Path, name: str) -> None:
    """Files come back under their names, twins by their keys, and pack the same."""
    (source / "dog").mkdir()
    before = originals(source)
    pack(source, tmp_path / name, keep_bytes=True)

    report = export(tmp_path / name, tmp_path / "out")

    corrected = {"bee/lie.jpg": "bee/lie.png", "cat/2": "cat/2.jpg"}
    twins = {"ant/a_b.jpg": "ant/a_b-2.jpg", "bee/x.png": "bee/x-2.png"}
    names = corrected | twins
    assert originals(tmp_path / "out") == {names.get(n, n): data for n, data in before.items()}
    assert report.renamed == {"extension of the stored format": 2, "key or class": 2}
    assert (report.samples, report.classes, report.fields, report.resumed) == (12, 4, 0, 0)
    assert report.bytes == sum(map(len, before.values()))
    assert sorted(os.listdir(tmp_path / "out")) == ["ant", "bee", "cat", "dog"]
    pack(tmp_path / "out", tmp_path / "again", keep_bytes=True)
    assert samples(tmp_path / "again") == samples(tmp_path / name)


def test_pixels_survive_the_restart_runs(folder: Path, shards: Path, tmp_path: Path) -> None:
    """What was coded in restart runs is exported so: other bytes, the pixels of the original."""
    export(shards, tmp_path / "out")

    for name, data in originals(folder).items():
        with Image.open(io.BytesIO(data)) as first, Image.open(tmp_path / "out" / name) as second:
            assert np.array_equal(np.asarray(first), np.asarray(second))


def test_keys_are_the_same_where_endings_change(tmp_path: Path) -> None:
    """Files whose stems were equal are called by their keys, whatever their new extensions."""
    source = tmp_path / "source"
    source.mkdir()
    kinds = {
        "a.jpg": "WEBP", "a.png": "PNG",  # as a.webp it would come second
        "b.jpg": "PNG", "b.png": "PNG",  # both would be b.png
        "c.jpg": "JPEG", "c.png": "PNG",  # as they are
        "d.b.jpg": "JPEG", "d_b.jpg": "JPEG", "d_b-2.jpg": "PNG",
    }  # fmt: skip
    for number, (name, kind) in enumerate(kinds.items()):
        (source / name).write_bytes(picture(number, kind))
    (source / "e.gif").write_text("no image, but it holds the key e")
    (source / "e.jpg").write_bytes(picture(20))
    pack(source, tmp_path / "packed", keep_bytes=True)

    report = export(tmp_path / "packed", tmp_path / "out")
    pack(tmp_path / "out", tmp_path / "again", keep_bytes=True)

    assert samples(tmp_path / "again") == samples(tmp_path / "packed")
    assert set(os.listdir(tmp_path / "out")) == {
        "a.webp", "a-2.png", "b.png", "b-2.png", "c.jpg", "c-2.png", "d.b.jpg", "d_b-3.jpg",
        "d_b-2.png", "e-2.jpg",
    }  # fmt: skip
    assert report.renamed == {
        "extension of the stored format": 3,  # a.jpg, b.jpg and d_b-2.jpg
        "key or class": 5,  # a.png, b.png, c.png, d_b.jpg and e.jpg
    }


def test_tars_of_others_become_folders(tmp_path: Path) -> None:
    """An indexed foreign shard is exported by its labels, with every other member as a field."""
    (tmp_path / "foreign").mkdir()
    with tarfile.open(tmp_path / "foreign/train.tar", "w") as archive:
        for number in range(12):
            members = {"jpeg": picture(number), "cls": b"%d" % (number % 11), "json": b"{}"}
            if number == 4:
                members["seg.png"] = picture(4, "PNG")
            for ending, data in members.items():
                info = tarfile.TarInfo(f"./train/{number:03}.{ending}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    index(tmp_path / "foreign")

    report = export(tmp_path / "foreign", tmp_path / "dst")

    assert (report.samples, report.fields) == (12, 13)
    files = originals(tmp_path / "dst")
    assert {os.path.basename(name) for name in files} == {
        *(f"{number:03}.{ending}" for number in range(12) for ending in ("jpeg", "json")),
        "004.seg.png",
    }
    for name, data in files.items():
        stem, _, ending = os.path.basename(name).partition(".")
        kinds = {"jpeg": picture(int(stem)), "json": b"{}", "seg.png": picture(int(stem), "PNG")}
        assert data == kinds[ending]
        assert name.startswith(f"{int(stem) % 11:02}/")


def _failing_at(count: int, error: BaseException) -> Any:
    """An ``os.replace`` that fails at one call."""
    calls = iter(range(10**6))

    def replace(src: Any, dst: Any, **folders: int) -> None:
        if next(calls) == count:
            raise error
        os.rename(src, dst, **folders)

    return replace


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_an_interrupted_export_goes_on(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Stopped at any file, several times over, it ends as if it had never been stopped."""
    export(shards, tmp_path / "whole")
    expected: type[BaseException] = (
        DestinationError if isinstance(error, OSError) else KeyboardInterrupt
    )
    for stop in (0, 1, 2, 10, 6, 8):  # the first call is the mark's, the others are files'
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", _failing_at(stop, error))
            with pytest.raises(expected):
                export(shards, tmp_path / "out")

    report = export(shards, tmp_path / "out")

    assert report.resumed == 22
    assert originals(tmp_path / "out") == originals(tmp_path / "whole")


def test_a_killed_export_goes_on(shards: Path, tmp_path: Path) -> None:
    """A process that dies leaves whole files, a lock that is free, and all that is needed."""
    code = (
        "import os, sys\nfrom fastdata.loaders.export import export\n"
        "export(*sys.argv[1:], progress=lambda _, done, __: done == 7 and os._exit(9))"
    )
    arguments = [sys.executable, "-P", "-c", code, str(shards), str(tmp_path / "out")]
    assert subprocess.run(arguments, check=False, timeout=240).returncode == 9
    left = originals(tmp_path / "out")
    (victim, *_) = (name for name in left if name.endswith(".jpg"))
    (tmp_path / "out" / victim).write_bytes(left[victim][:-1])  # as a power cut would

    report = export(shards, tmp_path / "out")

    assert report.resumed == 6
    assert len(originals(tmp_path / "out")) == 23
    assert (tmp_path / "out" / victim).read_bytes() == left[victim]


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("dst/thesis.tex", "all of it", "not empty"),
        ("dst/.export.json", '{"export": "another"}', "another data set"),
        ("dst", "all of it", "Not a directory"),
    ],
)
def test_nothing_else_is_touched(
    shards: Path, tmp_path: Path, name: str, text: str, what: str
) -> None:
    """What is no unfinished export of this data set is refused and stays as it is."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    before = originals(tmp_path)

    with pytest.raises(DestinationError, match=what):
        export(shards, tmp_path / "dst")

    assert originals(tmp_path) == before


def test_a_finished_export_is_not_begun_again(shards: Path, tmp_path: Path) -> None:
    """A whole export is a folder like any other: not empty."""
    export(shards, tmp_path / "dst")

    with pytest.raises(DestinationError, match="not empty"):
        export(shards, tmp_path / "dst")


def test_one_process_at_a_time(shards: Path, tmp_path: Path) -> None:
    """A folder that another export writes to is refused."""
    (tmp_path / "dst").mkdir()
    with Lock(tmp_path / "dst/.export.lock", "dst"), pytest.raises(BusyError):
        export(shards, tmp_path / "dst")


def test_sources_and_places_that_make_no_sense(folder: Path, shards: Path, tmp_path: Path) -> None:
    """A plain folder has nothing to export, and no export goes into the data set itself."""
    with pytest.raises(NotADatasetError, match="folder of images"):
        export(folder, tmp_path / "dst")
    with pytest.raises(NotADatasetError, match="nowhere"):
        export(tmp_path / "nowhere", tmp_path / "dst")
    with pytest.raises(DestinationError, match="within the data set"):
        export(shards, shards / "inside")


@pytest.fixture
def damaged(shards: Path, tmp_path: Path) -> tuple[Path, str]:
    """A copy of the shards with one bit of an image changed, and the image's name."""
    shutil.copytree(shards, tmp_path / "damaged")
    source = open_source(shards)
    row, (name,) = source.rows(np.array([7]))[0], source.catalog.names([7])  # type: ignore[union-attr]
    source.close()
    with (tmp_path / f"damaged/shard-{row['shard']:06}.tar").open("r+b") as file:
        file.seek(int(row["offset"]) + 100)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return tmp_path / "damaged", name


def test_damage_is_not_exported(damaged: tuple[Path, str], tmp_path: Path) -> None:
    """A damaged image is an error that names it, and no file."""
    path, name = damaged

    with pytest.raises(SampleError, match=os.path.splitext(name)[0]):
        export(path, tmp_path / "dst")

    assert len([n for n in originals(tmp_path / "dst") if n.endswith(".jpg")]) == 7
    assert not (tmp_path / "dst" / name).exists()
