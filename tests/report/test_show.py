"""A contact sheet shows every class, whole images, and what training would cut out of them."""

import os
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastdata import Loader
from fastdata.errors import (
    DestinationError,
    MissingExtraError,
    NotADatasetError,
    OptionError,
    SampleError,
)
from fastdata.plan.crop import CenterCrop, Crop, RandomResizedCrop
from fastdata.report.fonts import fonts_for
from fastdata.report.sheet import choose, sheet, shortened
from fastdata.report.tiles import SIDE, cropped, tile

LABELS = st.lists(st.integers(-1, 6), min_size=1, max_size=60)


@given(labels=LABELS, count=st.integers(1, 70), seed=st.integers(0, 3))
@settings(deadline=None)
def test_classes_are_balanced(labels: list[int], count: int, seed: int) -> None:
    """No class has two images more than another, unless the other has no more; none comes twice."""
    chosen = choose(np.array(labels, np.int32), count, seed).tolist()

    assert len(set(chosen)) == len(chosen) == min(count, len(labels))
    shown, there = Counter(labels[i] for i in chosen), Counter(labels)
    most = max(shown.values())
    assert all(shown[label] >= min(there[label], most - 1) for label in there)
    assert [labels[i] for i in chosen] == sorted(labels[i] for i in chosen)


def test_the_choice_is_one_of_chance() -> None:
    """Another seed shows other images, and another choice of classes where not all have room."""
    labels = np.repeat(np.arange(50, dtype=np.int32), 20)

    first, second = (choose(labels, 10, seed).tolist() for seed in (0, 1))

    assert first == choose(labels, 10, 0).tolist()
    assert set(labels[first]) != set(labels[second])


def _tiles(path: Path, columns: int, count: int) -> list[npt.NDArray[np.uint8]]:
    """The squares of a sheet, found by the layout that its size implies."""
    with Image.open(path) as image:
        pixels = np.asarray(image)
    gap = (pixels.shape[1] - columns * SIDE) // (columns + 1)
    rows = -(-count // columns)
    text = (pixels.shape[0] - 44) // rows - SIDE
    places = (divmod(place, columns) for place in range(count))
    corners = ((44 + row * (SIDE + text), gap + column * (SIDE + gap)) for row, column in places)
    return [pixels[y : y + SIDE, x : x + SIDE] for y, x in corners]


def test_every_image_is_on_its_tile(dataset: Path, tmp_path: Path) -> None:
    """Each of the three kinds of data sets gives the same sheet: all images, class by class."""
    shown = sheet(dataset, tmp_path / "sheet.png", columns=5)

    assert (shown.images, shown.samples, shown.classes, shown.unreadable) == (23, 23, 3, ())
    tiles = _tiles(shown.path, 5, 23)
    middles = [int(square[SIDE // 2, SIDE // 2].mean()) for square in tiles]
    grays = [round(middle / 10) for middle in middles]
    assert sorted(grays) == list(range(23))  # image i is gray 10 i
    assert [gray % 3 for gray in grays] == [0] * 8 + [1] * 8 + [2] * 7  # and of class i % 3
    for square, gray in zip(tiles, grays, strict=True):
        width, height = 60 - gray, 40 + gray
        inside = np.abs(square.astype(int) - 10 * gray).max(axis=2) < 4
        scale = SIDE / max(width, height)
        assert abs(inside.any(axis=0).sum() - width * scale) <= 1
        assert abs(inside.any(axis=1).sum() - height * scale) <= 1


@pytest.mark.parametrize(
    "crops", [RandomResizedCrop(32), CenterCrop(32, resize=48), CenterCrop((20, 90))]
)
def test_the_crop_is_that_of_training(tmp_path: Path, crops: Crop) -> None:
    """What is framed is what the loader hands out in its first epoch with the same seed."""
    for number in range(4):  # a picture whose colours tell the place in it
        y, x = np.mgrid[: 100 + 40 * number, :200]
        pixels = np.stack([x, y * 255 // y.max(), np.full_like(x, 9)], axis=-1).astype(np.uint8)
        assert cv2.imwrite(str(tmp_path / f"{number}.png"), pixels[:, :, ::-1])
    with Loader(tmp_path, 4, crop=crops, shuffle=False, seed=5) as loader:
        (batch,) = loader

    for number in range(4):
        with Image.open(tmp_path / f"{number}.png") as image:
            width, height = image.size
            left, top, right, bottom = cropped(crops, image.size, number, 5)
            box = left * width, top * height, right * width, bottom * height
            wanted = image.resize(crops.shape[::-1], Image.Resampling.BILINEAR, box)
        found = np.asarray(batch.images[number], int).transpose(1, 2, 0)  # (H, W, 3)
        assert np.abs(found - np.asarray(wanted, int)).max() <= 3


def test_the_rest_is_dimmed() -> None:
    """Within the frame an image is as it is, outside it is darker."""
    white = np.full((100, 200, 3), 255, np.uint8)

    square = tile(white, 0, CenterCrop(50), 0)

    bright = (square == 255).all(axis=2)
    assert abs(int(bright.any(axis=0).sum()) - SIDE // 4) <= 4
    assert bright[SIDE // 2, SIDE // 2]
    assert square[SIDE // 2, 4].max() < 128


@pytest.mark.parametrize("size", [(1, 1000), (1000, 1), (1, 1), (160, 160), (3, 2)])
def test_no_image_is_too_narrow(size: tuple[int, int]) -> None:
    """Lines of one pixel, with and without a crop, come as lines."""
    image = np.zeros((size[1], size[0], 3), np.uint8)

    for crops in (None, RandomResizedCrop(8), CenterCrop(8, resize=8)):
        assert (tile(image, 0, crops, 0) == 0).all(axis=2).any() or crops is not None


NAMES = [
    "\u6d77", "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1", "$x^2$ {", "two\nlines", "\u202eturned",
    os.fsdecode(b"no text \xff"), "a long name " * 12, "\U0010fffe", "__all__",
]  # fmt: skip


@pytest.mark.parametrize("ending", ["png", "jpg", "JPEG"])
def test_names_of_any_text_can_be_drawn(folder: Path, tmp_path: Path, ending: str) -> None:
    """Whatever classes and files are called, the sheet is drawn, without a warning."""
    image = (folder / "ant/000.jpg").read_bytes()
    for name in NAMES:
        path = tmp_path / "set" / name / f"{name[:30]}.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(image)

    shown = sheet(tmp_path / "set", tmp_path / f"sheet.{ending}", columns=4)

    with Image.open(shown.path) as drawn:
        drawn.load()
        assert drawn.size == (shown.width, shown.height)
        assert drawn.format == ("PNG" if ending == "png" else "JPEG")
    assert shown.images == len(NAMES)


def test_what_no_font_has_is_spelled_out() -> None:
    """A character without a glyph, or that is no print, appears as its code."""
    fonts = fonts_for(["a\u0378\U000e0041"])  # one that is not assigned, one without a shape

    assert fonts.families[0] == "DejaVu Sans"
    assert fonts.shown("\u00e9a\u202e\n") == "\u00e9a\\u202e\\n"
    assert fonts.shown("\u0378") == "\\u0378"
    assert fonts._replace(missing=frozenset("\u6d77")).shown("\u6d77!") == "\\u6d77!"


@given(text=st.text(min_size=2), room=st.integers(1, 20))
def test_long_text_loses_its_middle(text: str, room: int) -> None:
    """What fits stays; else as much of both ends as fits."""
    short = shortened(text, lambda text: len(text) <= room)

    if len(text) <= room:
        assert short == text
    else:
        start, _, end = short.partition("\u2026") if "\u2026" not in text else ("", "", "")
        assert len(short) == room
        assert text.startswith(start)
        assert text.endswith(end)


def test_an_image_that_cannot_be_decoded_says_so(folder: Path, tmp_path: Path) -> None:
    """A broken file in a folder has a tile with a cross, and its key is told."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.jpg").write_bytes((folder / "ant/000.jpg").read_bytes())
    (tmp_path / "set/b.jpg").write_bytes(b"\xff\xd8\xff nothing")

    shown = sheet(tmp_path / "set", tmp_path / "sheet.png")

    assert (shown.images, shown.classes, shown.unreadable) == (2, 0, ("b",))


def test_damage_is_an_error(shards: Path, tmp_path: Path) -> None:
    """A packed image that does not match its checksum is no picture to show."""
    copy = tmp_path / "set"
    copy.mkdir()
    for file in shards.iterdir():
        data = bytearray(file.read_bytes())
        if file.suffix == ".tar":
            data[700] ^= 1
        (copy / file.name).write_bytes(data)

    with pytest.raises(SampleError):
        sheet(copy, tmp_path / "sheet.png")
    assert not (tmp_path / "sheet.png").exists()


def test_bad_input(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options out of range, places that cannot be written and a missing library are named."""
    with pytest.raises(OptionError, match=r"sheet\.gif"):
        sheet(folder, tmp_path / "sheet.gif")
    for count, columns in ((0, 8), (64, 0)):
        with pytest.raises(OptionError, match="1 or more"):
            sheet(folder, tmp_path / "sheet.png", count=count, columns=columns)
    with pytest.raises(NotADatasetError):
        sheet(tmp_path / "nowhere", tmp_path / "sheet.png")
    with pytest.raises(DestinationError, match="missing"):
        sheet(folder, tmp_path / "missing/sheet.png")
    monkeypatch.setattr("fastdata.report.sheet._MOST_PIXELS", 1000)
    with pytest.raises(OptionError, match="more columns"):
        sheet(folder, tmp_path / "sheet.png", columns=1)
    monkeypatch.setitem(sys.modules, "matplotlib.font_manager", None)
    with pytest.raises(MissingExtraError, match=r"fastdata\[train\]"):
        sheet(folder, tmp_path / "sheet.png", count=4)
