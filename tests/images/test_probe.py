"""Telling what an encoded image is from its bytes."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS
from fastdata.images.probe import EXTENSIONS, FORMATS, ImageInfo, probe, sniff

MAGIC = {
    "jpeg": b"\xff\xd8\xff",
    "png": b"\x89PNG\r\n\x1a\n",
    "webp": b"RIFF\x20\0\0\0WEBP",
    "bmp": b"BM",
    "gif": b"GIF89a",
    "tiff": b"II*\0\x08\0\0\0",
    "npy": b"\x93NUMPY\1\0\x76\0{'descr': '|u1', ",
}


def _encoded(kind: str, size: tuple[int, int] = (21, 13)) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8)
    buffer = io.BytesIO()
    if kind == "npy":
        np.save(buffer, pixels)
    else:
        Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def test_every_format_has_a_code_and_an_extension() -> None:
    """Formats keep their codes, because catalogs store them; all but `unknown` have extensions."""
    assert FORMATS == ("unknown", "jpeg", "png", "webp", "bmp", "gif", "tiff", "npy")
    assert set(EXTENSIONS) == set(FORMATS[1:])


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_format_is_told_by_content(kind: str) -> None:
    """Format and size come from the bytes, of whichever buffer type."""
    data = _encoded(kind)

    info = probe(data)

    assert info[:3] == (kind, 21, 13)
    assert probe(memoryview(b"??" + data)[2:]) == info


def test_a_jpeg_carries_its_details() -> None:
    """Sampling, mode and restart interval are filled in for JPEG, and empty for the rest."""
    assert probe(_encoded("jpeg")) == ImageInfo("jpeg", 21, 13, 3, "4:2:0", False, 0)
    assert probe(_encoded("png")) == ImageInfo("png", 21, 13, 3)


def test_the_core_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JPEG probes alike with and without the native core."""
    data = _encoded("jpeg")
    with_core = probe(data)
    monkeypatch.setattr("fastdata.native.load", lambda: None)

    assert probe(data) == with_core


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an image: it is empty"),
        (b"<html>", "not an image: it starts with b'<html>'"),
        (b"\0" * 40, "not an image"),
        (b"\0\0\0\x20ftypheic\0\0\0\0", "HEIF is not loaded as it is: `fastdata pack`"),
        (b"\0\0\0\x20ftypmif1\0\0\0\0miafavif", "AVIF is not loaded as it is"),
        (b"\0\0\0\x20ftypisom\0\0\0\0", "not an image that can be read: a video"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "not an image that can be read: JPEG XL"),
        (b"RIFF\0\0\0\0WAVE", "not an image"),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, message: str) -> None:
    """Other files are refused with what they start with."""
    with pytest.raises(DecodeError, match=message):
        probe(data)


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_what_is_announced_is_what_is_probed(kind: str) -> None:
    """The first bytes name the format, even of an image that ends with them."""
    data = _encoded(kind)

    assert sniff(data[:64]) == kind == probe(data).format
    assert sniff(data[:16]) == kind


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0\0\0\x20ftypheic\0\0\0\0", "heif"),
        (b"8BPS\0\x01", "psd"),
        (b"\0\0\0\x20ftypisom\0\0\0\0", None),
        (b"\0\0\0\x0cJXL \r\n\x87\n", None),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_images_that_only_pack_reads_are_told_from_other_files(
    head: bytes, kind: str | None
) -> None:
    """What Pillow reads has a name; videos, texts and nothing at all have none."""
    assert sniff(head) == kind


def _info_or_refusal(data: bytes) -> None:
    """Fail on any exception but DecodeError, and on any size that nobody should decode."""
    try:
        info = probe(data)
    except DecodeError:
        return
    assert info.format in FORMATS[1:]
    assert 1 <= info.width * info.height <= MAX_PIXELS


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(list(MAGIC)), st.binary(max_size=120))
def test_any_bytes_are_an_image_or_a_decode_error(kind: str, tail: bytes) -> None:
    """Bytes that start like an image but are not one raise DecodeError and nothing else."""
    _info_or_refusal(MAGIC[kind] + tail)
    _info_or_refusal(tail)


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_damaged_images_are_images_or_a_decode_error(kind: str) -> None:
    """Flipped bits in a header, one to three at a time, never raise anything but DecodeError."""
    source = _encoded(kind)
    rng = np.random.default_rng(len(kind))
    for _ in range(2000):
        data = bytearray(source)
        for at in rng.integers(min(len(data), 300), size=rng.integers(1, 4)):
            data[at] ^= 1 << int(rng.integers(8))
        _info_or_refusal(bytes(data))


def test_a_missing_core_is_said_once(tmp_path: Path) -> None:
    """Whoever decodes or packs without the core reads so on standard error, and results say it."""
    code = """
import sys
sys.modules["fastdata._core"] = None  # as where it was not built
import fastdata as fd
from fastdata.batch import decode
from fastdata.native import decoder
from fastdata.cli.commands import run
print(decoder())
sys.argv = ["fastdata", "pack", sys.argv[1], sys.argv[2]]
raise SystemExit(run())
"""
    source = tmp_path / "source" / "ant"
    source.mkdir(parents=True)
    (source / "a.png").write_bytes(_encoded("png"))
    done = subprocess.run(
        [sys.executable, "-c", code, source.parent, tmp_path / "packed"],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OpenCV\n")
    assert done.stderr.count("fastdata's native core is missing from") == 1
