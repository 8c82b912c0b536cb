"""Equal files are packed once; and all that chooses files, together."""

import shutil
from pathlib import Path

import pytest
from packing import picture

from fastdata.converters.sources.dedupe import without_duplicates
from fastdata.converters.sources.open import Selection, list_source, scan
from fastdata.errors import OptionError, SourceError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two pictures four times, in two classes, among others of the same size and other sizes."""
    root = tmp_path / "src"
    for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4.jpg", "b/1.jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(1))
    (root / "a/0.jpg").write_bytes(picture(2))
    (root / "a/9.jpg").write_bytes(picture(1)[:-1] + b"x")
    (root / "b/0.jpg").write_bytes(picture(2) + b"longer")
    return root


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_of_equal_files_stays(source: Path, workers: int) -> None:
    """The others are left out with its name, and told apart where their labels differ."""
    listing = scan(source)

    found = without_duplicates(listing, workers)

    assert [found.name(i) for i in range(len(found))] == [
        *(b"a/0.jpg", b"a/1.jpg", b"a/9.jpg", b"b/0.jpg")
    ]
    assert dict(found.skipped) == {
        "a/2.jpg": "duplicate: a/1.jpg",
        "b/1.jpg": "duplicate under another label: a/1.jpg",
        "b/3.jpg": "duplicate under another label: a/1.jpg",
        "b/4.jpg": "duplicate under another label: a/1.jpg",
    }
    assert found.fingerprint != listing.fingerprint


def test_what_cannot_be_read_stays(source: Path) -> None:
    """A file that vanished is no duplicate; the pack will say what became of it."""
    listing = scan(source)
    (source / "a/1.jpg").unlink()

    found = without_duplicates(listing, 2)

    assert b"a/1.jpg" in [found.name(i) for i in range(len(found))]
    assert dict(found.skipped)["b/1.jpg"] == "duplicate under another label: a/2.jpg"


def test_choices_work_together(source: Path, tmp_path: Path) -> None:
    """Classes, fields, equal files and a limit are applied to a folder one after the other."""
    (source / "a/1.txt").write_text("one")
    (tmp_path / "classes.txt").write_text("b\nc\na\n")

    selection = Selection(fields=("txt",), classes=tmp_path / "classes.txt", dedupe=True, limit=3)
    found = list_source(source, selection)

    assert found.classes == ("b", "c", "a")
    assert len(found) == 3
    assert len(found.skipped) == 4
    assert found.field_names == ("txt",)
    assert len(list_source(source, Selection())) == len(scan(source)) == 9
    with pytest.raises(OptionError, match="1 or more"):
        list_source(source, Selection(limit=0))


def test_a_list_is_taken_instead_of_the_folder(source: Path, tmp_path: Path) -> None:
    """What the list names is all there is; fields come from its columns only."""
    (tmp_path / "list.csv").write_text("path,label\nb/1.jpg,x\na/1.jpg,y\n")

    found = list_source(source, Selection(manifest=tmp_path / "list.csv", dedupe=True))

    assert found.classes == ("x", "y")
    assert found.name(0) == b"b/1.jpg"
    assert found.skipped == (("a/1.jpg", "duplicate under another label: b/1.jpg"),)
    with pytest.raises(OptionError, match="must be columns of it"):
        list_source(source, Selection(manifest=tmp_path / "list.csv", fields=("txt",)))
    shutil.rmtree(source)
    with pytest.raises(SourceError, match="not a folder"):
        list_source(source, Selection(manifest=tmp_path / "list.csv"))
