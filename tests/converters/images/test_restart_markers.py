"""Packing codes JPEGs in restart runs: same pixels, same size, or kept and counted."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fastdata as fd
from fastdata import photos
from fastdata.converters.images.coding import transcode
from fastdata.images.probe import probe
from fastdata.plan.crop import Crop

pytestmark = pytest.mark.usefixtures("native_core")


def _pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty photo-like pictures."""
    root = tmp_path_factory.mktemp("album")
    photos.generate(root / "photos", images=40, classes=4)
    return root / "photos"


@pytest.mark.parametrize("name", ["shards", "one.lmdb"])
def test_packed_pixels_are_the_files(album: Path, tmp_path: Path, name: str) -> None:
    """Every packed JPEG has Pillow's pixels of its file to the bit, and restart markers."""
    fd.pack(album, tmp_path / name)

    for sample in fd.open(tmp_path / name, decode=False):
        original = (album / f"{sample.key}.jpg").read_bytes()
        assert np.array_equal(_pixels(sample.image), _pixels(original))
        assert probe(sample.image).restart_interval > 0


def test_size_stays(album: Path, tmp_path: Path) -> None:
    """All images together take no more than 2 % above what the files took."""
    report = fd.pack(album, tmp_path / "out")

    assert report.image_bytes / report.source_bytes < 1.02
    assert report.not_recoded == {}


def test_progressive_becomes_baseline(album: Path) -> None:
    """A progressive file is coded anew as baseline, pixel for pixel."""
    buffer = io.BytesIO()
    Image.open(next(album.rglob("*.jpg"))).convert("RGB").save(buffer, "JPEG", progressive=True)

    coded, kept, _ = transcode(buffer.getvalue(), 32)

    assert kept == ""
    assert probe(buffer.getvalue()).progressive
    assert not probe(coded).progressive
    assert np.array_equal(_pixels(coded), _pixels(buffer.getvalue()))


def test_what_was_coded_stays(album: Path) -> None:
    """Packing what was packed changes nothing: the same runs are found and the bytes kept."""
    coded, *_ = transcode(next(album.rglob("*.jpg")).read_bytes(), 32)

    assert transcode(coded, 32) == (coded, "", ())


def test_damaged_files_are_skipped(album: Path, tmp_path: Path) -> None:
    """A JPEG whose data are damaged is left out and named, where a header alone looks fine."""
    source = tmp_path / "src"
    source.mkdir()
    data = next(album.rglob("*.jpg")).read_bytes()
    (source / "good.jpg").write_bytes(data)
    (source / "bad.jpg").write_bytes(data[: len(data) // 2] + b"\xff\xd9")

    report = fd.pack(source, tmp_path / "out")

    assert report.samples == 1
    assert [entry.name for entry in report.skipped] == ["bad.jpg"]


def test_keep_bytes_and_other_runs_are_other_packs(album: Path, tmp_path: Path) -> None:
    """Bytes kept, or runs of another width, is another data set: not taken for complete."""
    fd.pack(album, tmp_path / "out")

    with pytest.raises(fd.errors.DestinationError, match="run_pixels"):
        fd.pack(album, tmp_path / "out", keep_bytes=True)
    with pytest.raises(fd.errors.DestinationError, match="run_pixels"):
        fd.pack(album, tmp_path / "out", run_pixels=64)


def test_without_the_core_bytes_are_kept(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the core was not built a file stays as it is, and the reason says so."""
    data = next(album.rglob("*.jpg")).read_bytes()
    monkeypatch.setattr("fastdata.native.load", lambda: None)

    assert transcode(data, 32) == (data, "the native core was not built", ())


def test_core_and_opencv_give_the_same_crops(
    album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without the core a loader gives the same order and crops, pixels within 2."""
    fd.pack(album, tmp_path / "out")
    crops: list[Crop] = [
        fd.RandomResizedCrop(64, flip=0.5),
        fd.CenterCrop(64, resize=80, flip=0.5),
        fd.CenterCrop(600, flip=0.5),
    ]
    for crop in crops:
        with fd.Loader(tmp_path / "out", 8, crop=crop, threads=2) as loader:
            native = [(batch.ids, batch.images.clone()) for batch in loader]
        with monkeypatch.context() as patch:
            patch.setattr("fastdata.native.load", lambda: None)
            with fd.Loader(tmp_path / "out", 8, crop=crop, threads=2) as loader:
                python = [(batch.ids, batch.images) for batch in loader]
        for (ids, images), (their_ids, their_images) in zip(native, python, strict=True):
            assert np.array_equal(ids, their_ids)
            assert (images.int() - their_images.int()).abs().max() <= 2
