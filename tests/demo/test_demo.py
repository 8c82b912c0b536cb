"""The demo from end to end, as small as it gets."""

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from fastdata.demo import DemoReport, render, to_json
from fastdata.demo import demo as demo_fully
from fastdata.errors import DestinationError


def demo(folder: Path, *, images: int = 20) -> DemoReport:
    """A demo of a few seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastdata.demo.run._CEILING_SECONDS", 0.1)
        patch.setattr("fastdata.demo.run._LOADING_SECONDS", 0.1)
        return demo_fully(folder, images=images, val_images=10, epochs=2, size=32)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> DemoReport:
    """A finished demo."""
    return demo(tmp_path_factory.mktemp("demo") / "demo")


@pytest.fixture
def folder(done: DemoReport, tmp_path: Path) -> Path:
    """A copy of its folder."""
    return Path(shutil.copytree(done.folder, tmp_path / "demo"))


def test_every_part_was_measured(done: DemoReport) -> None:
    """Packing twice, reading three ways, training and the ceiling all have their figures."""
    assert [(p.kind, p.samples, p.already_complete) for p in done.packing] == [
        ("tar", 20, False),
        ("lmdb", 20, False),
    ]
    assert [item.stored for item in done.loading] == ["folder", "tar shards", "LMDB"]
    assert all(item.images_per_second > 0 for item in done.loading)
    assert len(done.training.epochs) == 2
    assert done.training.val_samples == 10
    assert done.training.ceiling is not None


def test_table_has_every_figure(done: DemoReport) -> None:
    """One table shows packing, loading, training by epoch and the ceiling."""
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(done))
    text = console.export_text()

    for part in ("tar shards", "LMDB", "folder", "epoch 1", "epoch 2", "val accuracy", "ceiling"):
        assert part in text
    assert text.count("pack ") == 1


def test_json_is_one_line(done: DemoReport) -> None:
    """The JSON is one line with every figure."""
    text = to_json(done)

    assert "\n" not in text
    assert json.loads(text)["training"]["model"] == "resnet18"


def test_report_shows_the_pictures(done: DemoReport) -> None:
    """The report has a contact sheet of crops of all kinds, and fetches nothing."""
    text = Path(done.html).read_text(encoding="utf-8")

    assert text.count("<img") == 20
    assert all(name.name in text for name in Path(done.folder, "photos/train").iterdir())
    assert "http" not in text.replace("http-equiv", "")


def test_second_demo_takes_what_is_there(folder: Path) -> None:
    """A second demo generates and packs nothing, trains to the same result, and says so."""
    kept = {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.name != "report.html"
    }
    again = demo(folder)

    assert all(packed.already_complete for packed in again.packing)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_stopped_demo_begins_anew(folder: Path) -> None:
    """Pictures that were not finished are made again, and nothing unfinished stays."""
    (folder / "photos").rename(folder / "photos.tmp")
    shutil.rmtree(folder / "photos.tmp" / "val")
    demo(folder)

    assert len(list((folder / "photos/val").rglob("*.jpg"))) == 10
    assert not (folder / "photos.tmp").exists()


def test_pictures_of_another_demo(folder: Path) -> None:
    """Pictures that other settings made are kept, with an error that says what to do."""
    with pytest.raises(DestinationError, match=r"photos holds something other .* remove it"):
        demo(folder, images=30)


def test_folder_with_photos_of_the_user(tmp_path: Path) -> None:
    """A folder that someone calls photos is not touched."""
    own = tmp_path / "photos" / "holiday.jpg"
    own.parent.mkdir()
    own.write_bytes(b"mine")
    with pytest.raises(DestinationError):
        demo(tmp_path)

    assert own.read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["photos", "train", "val"])
def test_it_goes_into_no_linked_folder(tmp_path: Path, name: str) -> None:
    """Folders within the demo's are its own; a link in the place of one is an error."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / name).symlink_to(outside / "new")
    with pytest.raises(DestinationError, match="symbolic link"):
        demo(tmp_path / "demo")

    assert list(outside.iterdir()) == []


def test_it_removes_no_pictures_of_others(tmp_path: Path) -> None:
    """A folder with the name that unfinished pictures have goes only with the demo's own note."""
    theirs = tmp_path / "photos.tmp/precious.jpg"
    theirs.parent.mkdir()
    theirs.write_bytes(b"mine")
    with pytest.raises(DestinationError, match="something other than this demo's images"):
        demo(tmp_path)
    os.mkfifo(theirs.with_name("made-by-demo.json"))
    with pytest.raises(DestinationError, match="something other than this demo's images"):
        demo(tmp_path)
    assert theirs.read_bytes() == b"mine"
