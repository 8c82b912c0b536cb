"""Files that cannot be packed are skipped and named, whatever happens to them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from packing import KINDS, load, picture

from fastdata.converters.pack import pack
from fastdata.errors import (
    SourceError,
)


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

    def opened(path: str | bytes, flags: int, mode: int = 0o777) -> int:
        if isinstance(path, bytes) and path.endswith(name):
            action(path)
        return real(path, flags, mode)

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
