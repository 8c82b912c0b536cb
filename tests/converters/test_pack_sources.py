"""Files that cannot be packed are skipped and named, whatever happens to them."""

import errno
import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from jpegs import ARITHMETIC, MAKERS, scene
from packing import KINDS, load, picture
from PIL import Image

import fastdata as fd
from fastdata.converters.images.coding import Coding
from fastdata.converters.pack import pack
from fastdata.converters.sources.open import scan
from fastdata.converters.stages import read_all
from fastdata.dataset.manifest import Skipped
from fastdata.errors import SourceError
from fastdata.images.pixels import decode


@KINDS
def test_what_is_no_image_is_skipped(source: Path, tmp_path: Path, name: str) -> None:
    """Text, a cut image, an empty file and a stray file are listed with reasons, and counted."""
    (source / "ant/note.jpg").write_text("no image at all")
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    (source / "cat/empty.jpg").touch()
    (source / "stray.jpg").write_bytes(picture(1))

    report = pack(source, tmp_path / name)

    assert report.samples == 12
    reasons = dict(report.skipped)
    assert sorted(reasons) == ["ant/note.jpg", "bee/cut.jpg", "cat/empty.jpg", "stray.jpg"]
    assert reasons["ant/note.jpg"].startswith("no usable image: not an image")
    assert reasons["bee/cut.jpg"].startswith("no usable image: truncated")
    counts = {"beside class folders": 1, "empty file": 1, "no usable image": 2}
    assert report.skipped_counts == load(tmp_path / name).skipped == counts


def sabotage(
    monkeypatch: pytest.MonkeyPatch, name: bytes, action: Callable[[bytes], object]
) -> None:
    """Has something happen to a source file right before it is opened."""
    real = os.open

    def opened(path: str | bytes, flags: int, *args: int, **options: int) -> int:
        if isinstance(path, bytes) and path.endswith(name):
            action(path)
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", opened)


def grow(path: bytes) -> None:
    """Adds to a file."""
    with open(path, "ab") as file:
        file.write(b"more")


def become_a_fifo(path: bytes) -> None:
    """Replaces a file by a FIFO that nobody writes to."""
    os.unlink(path)
    os.mkfifo(path)


def refuse(path: bytes) -> None:
    """Denies access, which root is never denied."""
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (os.unlink, "vanished"),
        (grow, "changed while it was read"),
        (become_a_fifo, "changed while it was read"),
        (refuse, "unreadable: Permission denied"),
    ],
)
def test_a_file_that_changes_is_skipped(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[bytes], object],
    reason: str,
) -> None:
    """Between the listing and the reading anything may happen to a file, and never a hang."""
    sabotage(monkeypatch, b"cat/1.jpg", action)

    report = pack(source, tmp_path / "out")

    assert report.samples == 11
    assert report.skipped == (("cat/1.jpg", reason),)


def test_a_file_that_changes_in_place_while_read_is_skipped(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same size is not enough: half of the old and half of the new would be a torn sample."""
    real = os.fstat
    seen: list[int] = []

    def fstat(fd: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("cat/1.jpg"):
            seen.append(fd)
            if len(seen) == 2:
                os.utime(source / "cat/1.jpg", (1, 1))
        return real(fd)

    monkeypatch.setattr(os, "fstat", fstat)
    report = pack(source, tmp_path / "out", workers=1)

    assert report.skipped == (("cat/1.jpg", "changed while it was read"),)


def test_too_many_open_files_are_not_the_files_fault(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipping good files because of the process's own limit would lose data silently."""

    def fail(path: bytes) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    sabotage(monkeypatch, b"cat/1.jpg", fail)

    with pytest.raises(SourceError, match="Too many open files"):
        pack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_strict_makes_a_skip_an_error(source: Path, tmp_path: Path) -> None:
    """What the listing or the reading would leave out is named, and nothing is written."""
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    with pytest.raises(SourceError, match=r"bee/cut.jpg: no usable image: truncated"):
        pack(source, tmp_path / "out", strict=True)
    (source / "bee/cut.jpg").write_bytes(b"")
    with pytest.raises(SourceError, match=r"bee/cut.jpg: empty file"):
        pack(source, tmp_path / "out", strict=True)
    assert os.listdir(tmp_path) == ["source"]


@KINDS
def test_a_source_without_an_image_is_an_error(tmp_path: Path, name: str) -> None:
    """Files that turn out to be none leave nothing behind but the error with their reasons."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.jpg").write_text("text")

    with pytest.raises(SourceError, match="holds no image; left out: 1 no usable image"):
        pack(tmp_path / "src", tmp_path / name)
    assert os.listdir(tmp_path) == ["src"]


def saved(image: Image.Image, kind: str) -> bytes:
    """An image in some format."""
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def twelve_bits() -> bytes:
    """A JPEG whose frame header announces samples of 12 bits."""
    data = bytearray(picture(1))
    data[data.index(b"\xff\xc0") + 4] = 12
    return bytes(data)


def bomb(width: int, height: int) -> bytes:
    """A small PNG that asks for a lot of memory."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    ends = b"\0\0\0\0IEND\xaeB`\x82"
    return b"\x89PNG\r\n\x1a\n\0\0\0\x0d" + header + struct.pack(">I", zlib.crc32(header)) + ends


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (os.unlink, "vanished"),
        (grow, "changed while it was read"),
        (become_a_fifo, "changed while it was read"),
        (refuse, "unreadable: Permission denied"),
    ],
)
def test_a_field_that_changes_takes_its_sample_along(
    source: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[[bytes], object], reason: str
) -> None:
    """Half a sample is none: the reason names the field."""
    (source / "cat/1.txt").write_text("a caption")
    listing = scan(source, fields=("txt",))
    sabotage(monkeypatch, b"cat/1.txt", action)

    found = [entry for _, entry in read_all(listing, range(len(listing)), 2, Coding(None))]

    skipped = [entry for entry in found if isinstance(entry, Skipped)]
    assert skipped == [Skipped("cat/1.jpg", f"no usable field: txt: {reason}")]


@pytest.mark.usefixtures("native_core")
@KINDS
def test_every_kind_of_image_is_packed(tmp_path: Path, name: str) -> None:
    """Rare JPEGs and all other formats come back with the pixels of their files."""
    photo, gray = Image.fromarray(scene(37, 29)), Image.fromarray(scene(37, 29, 1)[:, :, 0])
    files = {kind.replace(" ", "-"): maker(37, 29) for kind, maker in MAKERS.items()}
    files["arithmetic"] = ARITHMETIC
    for kind in ("PNG", "WEBP", "BMP", "GIF", "TIFF"):
        files[f"colour-{kind}"] = saved(photo, kind)
        files[f"gray-{kind}"] = saved(gray, kind)
    for kind in ("PNG", "WEBP", "TIFF", "BMP"):
        files[f"alpha-{kind}"] = saved(photo.convert("RGBA"), kind)
    for kind in ("PNG", "TIFF"):
        files[f"deep-{kind}"] = saved(Image.new("I;16", (37, 29), 40_000), kind)
        files[f"palette-{kind}"] = saved(photo.convert("P"), kind)
        files[f"bits-{kind}"] = saved(gray.convert("1"), kind)
    files["cmyk-TIFF"] = saved(photo.convert("CMYK"), "TIFF")
    for file, data in files.items():
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / file.replace(":", "")).write_bytes(data)

    report = pack(tmp_path / "src", tmp_path / name)

    assert report.skipped == ()
    packed = {sample.key: sample.image for sample in fd.open(tmp_path / name, decode=False)}
    assert len(packed) == len(files)
    for file, data in files.items():
        assert np.array_equal(decode(packed[file.replace(":", "")]), decode(data)), file


def test_what_no_decoder_reads_is_skipped(tmp_path: Path) -> None:
    """Kinds that nothing here decodes, and images too large to decode, are named, not packed."""
    lossless = picture(1).replace(b"\xff\xc0", b"\xff\xc3", 1)
    flipped = bytearray(saved(Image.fromarray(scene(60, 40)), "PNG"))
    flipped[len(flipped) // 2] ^= 0x55
    files = {
        "12.jpg": (twelve_bits(), "JPEG with 12-bit samples"),
        "bomb.png": (bomb(60_000, 60_000), "60000x60000 pixels, over the limit"),
        "damaged.png": (bytes(flipped), "OpenCV cannot decode"),
        "lossless.jpg": (lossless, "lossless JPEG"),
        "none.png": (bomb(0, 9), "0x9 pixels holds nothing"),
        "sound.webp": (b"RIFF\x20\0\0\0WAVEfmt ", "not an image"),
    }
    (tmp_path / "src").mkdir()
    (tmp_path / "src/good.jpg").write_bytes(picture(1))
    for file, (data, _) in files.items():
        (tmp_path / "src" / file).write_bytes(data)

    report = pack(tmp_path / "src", tmp_path / "out")

    assert report.samples == 1
    assert [entry.name for entry in report.skipped] == sorted(files)
    for entry in report.skipped:
        assert entry.reason.startswith("no usable image: ")
        assert files[entry.name][1] in entry.reason


def test_paths_longer_than_the_system_takes_are_skipped(tmp_path: Path) -> None:
    """A file that can only be reached step by step is named with the system's reason."""
    root = tmp_path / "src"
    root.mkdir()
    (root / "c").mkdir()
    (root / "c/a.jpg").write_bytes(picture(1))
    part = "d" * 250
    here = os.open(root / "c", os.O_RDONLY)
    for _ in range(18):
        os.mkdir(part, dir_fd=here)
        there = os.open(part, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(os.open("deep.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)

    report = pack(root, tmp_path / "out")

    assert report.samples == 1
    (entry,) = report.skipped
    assert entry.name.startswith(f"c/{part}/{part}/")
    assert entry.reason == "unreadable: File name too long"


def test_rules_are_counted(tmp_path: Path) -> None:
    """What is packed by a rule, such as the first of several frames, is in report and manifest."""
    (tmp_path / "src").mkdir()
    for number in range(3):
        first, second = (Image.new("L", (9, 9), 90 * i + number) for i in range(2))
        first.save(tmp_path / f"src/{number}.gif", save_all=True, append_images=[second])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(scene(30, 20)).save(tmp_path / "src/turned.jpg", exif=exif)

    report = pack(tmp_path / "src", tmp_path / "out", orient="apply")

    assert report.lossy_notes == {
        "GIF coded to PNG": 3,
        "first of several frames": 3,
        "turned upright": 1,
    }
    assert load(tmp_path / "out").noted == report.lossy_notes
    sizes = {s.key: s.image.shape[:2] for s in fd.open(tmp_path / "out")}
    assert sizes == {"0": (9, 9), "1": (9, 9), "2": (9, 9), "turned": (30, 20)}
