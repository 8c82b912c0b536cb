"""JPEGs that every program reads, although they are not as they should be, and damaged ones."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import cv2
import jpegs
import numpy as np
import pytest
from coded_jpegs import lossless
from filling import Decoder
from jpegs import Pixels, decoded, scene

import fastdata as fd
from fastdata.converters.images.coding import Coded, Coding
from fastdata.errors import DecodeError
from fastdata.images.probe import ImageInfo, probe

KINDS = ("4:2:0 baseline", "4:2:0 restart 5", "4:2:0 progressive", "gray", "rgb")
LEFT_OVER = "bytes left over in JPEG data"
WARNINGS = "JPEG with harmless warnings"


def _odd(width: int = 70, height: int = 50) -> Iterator[tuple[str, bytes, Pixels]]:
    """Name, bytes, and the pixels that Pillow reads, if not of that file then of its good twin."""
    for kind in KINDS:
        good = jpegs.MAKERS[kind](width, height)
        if kind != "rgb":
            for oddity, data in jpegs.odd(good):
                yield f"{kind}, {oddity}", data, decoded(good)
        if "progressive" not in kind and kind != "gray":
            plain = jpegs.without_huffman_tables(good)
            yield f"{kind}, standard tables", plain, decoded(plain)
        for transform in range(4):
            data = jpegs.adobe(good, transform)
            yield f"{kind}, Adobe transform {transform}", data, decoded(data)
    for transform in range(4):
        data = jpegs.adobe(jpegs.MAKERS["cmyk"](width, height), transform)
        yield f"cmyk, Adobe transform {transform}", data, decoded(data)


ODD = {name: (data, pixels) for name, data, pixels in _odd()}


@pytest.mark.parametrize("libjpeg", [False, True])
def test_odd_files_have_pillows_pixels(
    native_core: ModuleType, tmp_path: Path, libjpeg: bool
) -> None:
    """Whole and in part, by our decoder and by libjpeg-turbo."""
    decoder = Decoder(native_core, tmp_path, libjpeg=libjpeg)
    for name, (data, expected) in ODD.items():
        for x, y, w, h in ((0, 0, 70, 50), (13, 9, 31, 40), (60, 40, 10, 10)):
            found = decoder.region(data, (x, y, w, h))
            assert np.array_equal(found, expected[y : y + h, x : x + w]), (name, found)


@pytest.mark.usefixtures("native_core")
def test_packed_they_are_clean(capfd: pytest.CaptureFixture[str]) -> None:
    """What is stored has the same pixels, and no libjpeg warns of it; what was wrong is counted."""
    for name, (data, expected) in ODD.items():
        coded = Coding().code(data, probe(data))
        capfd.readouterr()

        again = cv2.imdecode(np.frombuffer(coded.image, np.uint8), cv2.IMREAD_COLOR_RGB)

        assert capfd.readouterr().err == "", name
        assert again is not None, name
        assert np.array_equal(decoded(coded.image), expected), name
        assert coded.not_recoded == "", name
        assert probe(coded.image).restart_interval > 0, name
        left_over = "bytes behind the data" in name or "before a restart" in name
        if "progressive" not in name:  # whose data libjpeg reads ahead in
            assert (LEFT_OVER in coded.lossy_notes) == left_over, name
        assert Coding().code(coded.image, probe(coded.image)).lossy_notes == (), name
    assert Coding().code(*_probed("4:2:0 baseline, no end")).lossy_notes == (WARNINGS,)
    assert Coding().code(*_probed("gray, another JFIF revision")).lossy_notes == (WARNINGS,)


def _probed(name: str) -> tuple[bytes, ImageInfo]:
    data = ODD[name][0]
    return data, probe(data)


def test_progressive_and_arithmetic_files_must_end(native_core: ModuleType) -> None:
    """What is missing of them does not show when they are decoded, so they must have an end."""
    for data in (jpegs.MAKERS["4:2:0 progressive"](70, 50), jpegs.ARITHMETIC):
        with pytest.raises(DecodeError, match="no end-of-image marker"):
            probe(data[:-2])


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """The odd files."""
    folder = tmp_path / "album"
    folder.mkdir()
    for number, (data, _) in enumerate(ODD.values()):
        (folder / f"{number:03}.jpg").write_bytes(data)
    return folder


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("keep_bytes", [False, True])
def test_folders_and_packs_of_them_load(album: Path, tmp_path: Path, keep_bytes: bool) -> None:
    """None is left out, and a batch of a folder and of a pack, bytes kept or not, is Pillow's."""
    report = fd.pack(album, tmp_path / "out", keep_bytes=keep_bytes)

    assert report.samples == len(ODD)
    assert (report.lossy_notes == {}) == keep_bytes
    for path in (album, tmp_path / "out"):
        crop = fd.CenterCrop((50, 70))
        with fd.Loader(path, len(ODD), crop=crop, shuffle=False) as loader:
            (batch,) = loader
        images = batch.images.permute(0, 2, 3, 1).numpy()
        for key, image in zip(batch.keys, images, strict=True):
            _, expected = list(ODD.values())[int(key)]
            assert np.array_equal(image, expected), (path, list(ODD)[int(key)])


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _bad_code(data: bytes) -> bytes:
    at = data.index(b"\xff\xda") + 60
    return data[:at] + b"\xff\x00" * 20 + data[at + 40 :]


def _missing_restart(data: bytes) -> bytes:
    at = data.index(b"\xff\xd1", data.index(b"\xff\xda"))
    return data[:at] + data[at + 2 :]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "cut": ("4:2:0 baseline", _cut),
    "cut runs": ("4:2:0 restart 5", _cut),
    "cut gray": ("gray", _cut),
    "cut cmyk": ("cmyk", _cut),
    "cut and closed": ("4:4:4 baseline", lambda data: _cut(data) + b"\xff\xd9"),
    "bad codes": ("4:2:0 baseline", _bad_code),
    "a restart is missing": ("4:2:0 restart 5", _missing_restart),
    "cut progressive": ("4:2:0 progressive", lambda data: data[: len(data) - 400]),
}


def _damaged(name: str) -> bytes:
    kind, damage = DAMAGE[name]
    return damage(jpegs.MAKERS[kind](90, 70))


def _store(data: bytes, **options: object) -> Coded:
    return Coding(damaged="keep", **options).code_file(data)  # type: ignore[arg-type]


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused_or_kept(name: str) -> None:
    """Kept, they have libjpeg-turbo's pixels, as Pillow reads them, in a file without damage."""
    data = _damaged(name)
    with pytest.raises(DecodeError):
        Coding().code_file(data)

    kept = _store(data)

    assert kept.damage
    assert np.array_equal(decoded(kept.image), decoded(data + b"\xff\xd9"))
    again = Coding().code_file(kept.image)
    assert again.image == kept.image
    assert again.damage == ""
    assert kept.info == probe(kept.image)
    if "progressive" not in name:
        assert kept.info.format == "jpeg"
        assert kept.info.restart_interval > 0
    small = _store(data, resize="40")
    assert min(small.info.width, small.info.height) == 40


@pytest.mark.usefixtures("native_core")
def test_what_nobody_reads_is_never_kept() -> None:
    """Without a whole header, over a limit, or no JPEG: refused as ever."""
    good = jpegs.MAKERS["4:2:0 baseline"](90, 70)
    frame = good.index(b"\xff\xc0")
    bomb = good[: frame + 5] + b"\xff\xdc\xff\xdc" + good[frame + 9 :]
    for data in (b"", b"text", good[:200], bomb, bomb[:-9], scene(9, 9).tobytes()):
        with pytest.raises(DecodeError):
            _store(data)


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("keep_bytes", [False, True])
def test_a_pack_names_what_it_kept(tmp_path: Path, keep_bytes: bool) -> None:
    """Damaged files are packed, counted and named; the manifest has the option."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "good.jpg").write_bytes(jpegs.MAKERS["4:2:0 baseline"](90, 70))
    (source / "half.jpg").write_bytes(_damaged("cut"))
    (source / "text.jpg").write_bytes(b"text")

    left_out = fd.pack(source, tmp_path / "skip", keep_bytes=keep_bytes)
    report = fd.pack(source, tmp_path / "keep", keep_bytes=keep_bytes, damaged="keep")

    assert (left_out.samples, report.samples) == (1, 2)
    assert report.skipped_counts == {"damaged but packed": 1, "no usable image": 1}
    lines = (tmp_path / "keep" / "skipped.jsonl").read_text().splitlines()
    named = {entry["name"]: entry["reason"] for entry in map(json.loads, lines)}
    assert named["half.jpg"].startswith("damaged but packed: Corrupt JPEG data")
    samples = {sample.key: sample.image for sample in fd.open(tmp_path / "keep", decode=False)}
    assert np.array_equal(decoded(samples["half"]), decoded(_damaged("cut") + b"\xff\xd9"))
    with pytest.raises(fd.errors.DestinationError, match="damaged"):
        fd.pack(source, tmp_path / "keep", keep_bytes=keep_bytes)
    again = fd.pack(source, tmp_path / "keep", keep_bytes=keep_bytes, damaged="keep")
    assert again.already_complete


@pytest.mark.usefixtures("native_core")
def test_strict_minds_what_is_left_out_alone(tmp_path: Path) -> None:
    """A damaged file that was asked for is no error under strict."""
    (tmp_path / "half.jpg").write_bytes(_damaged("cut"))

    assert fd.pack(tmp_path, tmp_path.with_suffix(".out"), strict=True, damaged="keep").samples == 1
    with pytest.raises(fd.errors.SourceError, match=r"half\.jpg"):
        fd.pack(tmp_path, tmp_path.with_suffix(".other"), strict=True)


@pytest.mark.usefixtures("native_core")
def test_a_bare_end_is_not_enough_to_keep_bytes() -> None:
    """With bytes kept, a file without an end is decoded once, which tells whether it was cut."""
    good = jpegs.MAKERS["4:2:0 baseline"](90, 70)
    keep = Coding(None)

    assert keep.code_file(good[:-2]).image == good[:-2]
    with pytest.raises(DecodeError, match="premature end"):
        keep.code_file(_cut(good))


def test_lossless_files_become_png() -> None:
    """No loader decodes them; where Pillow does, they are packed with their pixels, and noted."""
    pixels = scene(33, 21, 1)[:, :, 0]
    data = lossless(pixels)
    with pytest.raises(DecodeError, match="lossless"):
        probe(data)

    coded = Coding().code_file(data)

    assert coded.info.format == "png"
    assert coded.lossy_notes == ("lossless JPEG coded to PNG",)
    assert np.array_equal(decoded(coded.image)[:, :, 0], pixels)
    for broken in (data[:40], data[:-2].replace(b"\x08", b"\x10", 1)):
        with pytest.raises(DecodeError, match="JPEG"):
            Coding().code_file(broken)
