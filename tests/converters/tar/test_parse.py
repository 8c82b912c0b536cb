"""Strict reading of tar headers, against tarfile and tar(1)."""

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fastdata.converters.tar.parse import Member, read_members
from fastdata.converters.tar.shards import END, member_header, padding
from fastdata.errors import ShardError

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def parse(data: bytes, tmp_path: Path) -> list[tuple[bytes, bytes]]:
    """Name and content of every regular file of a tar."""
    path = tmp_path / "parsed.tar"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        members: list[Member] = list(read_members(fd, "parsed.tar"))
    finally:
        os.close(fd)
    return [(member.name, data[member.offset :][: member.size]) for member in members]


def tar(names: list[str], kind: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar of files that hold their own names, as Python writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as file:
        for name in names:
            data = os.fsencode(name)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def member(name: bytes, data: bytes) -> bytes:
    """One member as fastdata writes it."""
    return member_header(name, len(data)) + data + padding(len(data))


def block(kind: bytes = b"0", size: bytes = b"%011o\0" % 0, *, name: bytes = b"a.jpg") -> bytes:
    """A header of any type and size, with a checksum that is right."""
    header = member_header(name, 0)
    header = header[:124] + size + header[136:148] + b" " * 8 + kind + header[157:]
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


@pytest.mark.parametrize("kind", FORMATS)
def test_reads_what_tarfile_writes(kind: str, tmp_path: Path) -> None:
    """Names short, long, split, unicode, dotted, absolute and upward come as tarfile has them."""
    names = ["a.jpg", "d/e/f.tar.gz", "/etc/passwd", "../../up", "\u6d77/\u00e9.png", " a\nb "]
    names.append("x" * 80 + "/" + "y" * 90)
    if kind != "ustar":
        names += ["z" * 300, "p/" * 120 + "q"]

    found = parse(tar(names, FORMATS[kind]), tmp_path)

    assert found == [(os.fsencode(name), os.fsencode(name)) for name in names]


@pytest.mark.parametrize("kind", ["ustar", "gnu", "pax"])
def test_reads_what_tar_writes(kind: str, tmp_path: Path) -> None:
    """So with GNU tar, whose directories are passed over and whose blocking adds zeros."""
    names = ["a.jpg", "b/c.txt", "b/" + "long" * 20 + "/" + "d" * 90]
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)
    command = ["tar", f"--format={kind}", "--sort=name", "-cf", str(tmp_path / "x.tar"), "a.jpg"]
    subprocess.run([*command, "b"], cwd=tmp_path / "in", check=True)

    found = parse((tmp_path / "x.tar").read_bytes(), tmp_path)

    assert found == [(name.encode(), name.encode()) for name in sorted(names)]


def test_reads_what_fastdata_writes(tmp_path: Path) -> None:
    """Names that are no text and names of 4,000 bytes come back to the bit."""
    names = [b"a", b"\xff\xfe.jpg", b"d/" * 2000, b"\xff" * 200, b"n" * 100, b"n" * 101]
    names = [name.rstrip(b"/") for name in names]
    data = b"".join(member(name, name[:700]) for name in names) + END

    assert parse(data, tmp_path) == [(name, name[:700]) for name in names]


GOOD = member(b"a.jpg", b"image") + member(b"a.cls", b"1")
EVIL: dict[str, tuple[bytes, str]] = {
    "link": (block(b"1") + END, "hard link"),
    "symlink": (block(b"2") + END, "symbolic link"),
    "device": (block(b"3") + END, "character device"),
    "fifo": (block(b"6") + END, "FIFO"),
    "sparse": (block(b"S") + END, "sparse"),
    "unknown": (block(b"Z") + END, "unsupported member"),
    "volume": (block(b"V") + END, "unsupported member"),
    "negative": (block(size=b"\xff" * 12) + END, "negative size"),
    "huge": (block(size=b"\x80" + b"\xff" * 11) + END, "truncated"),
    "minus": (block(size=b"-0000000001\0") + END, "a size must be a number"),
    "no size": (block(size=bytes(12)) + END, "a size must be a number"),
    "large": (block(size=b"77777777777\0") + END, "truncated"),
    "no name": (block(name=b"") + END, "cannot be called"),
    "folder as file": (block(name=b"a/") + END, "cannot be called"),
    "gzip": (gzip.compress(GOOD + END), "gzip"),
    "xz": (b"\xfd7zXZ\0" + bytes(1018), "xz"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(1020), "zstd"),
    "empty": (b"", "truncated"),
    "text": (b"hello\n" * 500, "checksum"),
    "no end": (GOOD, "two blocks of zeros"),
    "half an end": (GOOD + bytes(512), "two blocks of zeros"),
    "lone zeros": (GOOD + bytes(512) + GOOD + END, "one block of zeros; an archive"),
    "after the end": (GOOD + END + bytes(512) + b"x", "after the end"),
    "second archive": (GOOD + END + GOOD + END, "after the end"),
    "cut header": (GOOD[:1500], "truncated"),
    "cut data": (member(b"a.jpg", bytes(3000))[:2048], "truncated"),
    "flipped": (bytes([GOOD[0] ^ 1]) + GOOD[1:] + END, "checksum"),
    "pax alone": (member_header(b"n" * 300, 0)[:-512] + END, "without a member"),
    "pax twice": (member_header(b"n" * 300, 0)[:-512] * 2 + END, "two extended headers"),
    "huge pax": (block(b"x", b"%011o\0" % (2 << 20)) + bytes(2 << 20) + END, "over the limit"),
    "bad pax": (block(b"x", b"%011o\0" % 5) + b"hello".ljust(512, b"\0") + END, "PAX record"),
    "nul pax": (
        block(b"x", b"%011o\0" % 12) + b"12 path=a\0b\n".ljust(512, b"\0") + block() + END,
        "cannot be called",
    ),
    "pax size": (
        block(b"x", b"%011o\0" % 11) + b"11 size=-1\n".ljust(512, b"\0") + block() + END,
        "a size must be a number",
    ),
    "pax sparse": (
        block(b"x", b"%011o\0" % 22) + b"22 GNU.sparse.major=1\n".ljust(512, b"\0") + END,
        "sparse",
    ),
}


@pytest.mark.parametrize("name", EVIL)
def test_refuses(name: str, tmp_path: Path) -> None:
    """What is not plain is an error that names shard and offset."""
    data, message = EVIL[name]
    with pytest.raises(ShardError, match=rf"parsed.tar: at byte \d+: .*{message}"):
        parse(data, tmp_path)


def test_a_flip_in_any_header_is_seen(tmp_path: Path) -> None:
    """No bit of a header can change unseen; the padding behind its fields counts, too."""
    good = member(b"k/a.jpg", b"image") + END
    for byte in range(512):
        for bit in (0, 5):
            bad = bytearray(good)
            bad[byte] ^= 1 << bit
            try:
                found = parse(bytes(bad), tmp_path)
            except ShardError:
                continue
            # bits of the checksum field that no reader of tar looks at
            assert 148 <= byte < 156, byte
            assert found == [(b"k/a.jpg", b"image")]


@pytest.mark.parametrize("cut", [*range(0, 2048, 97), 2047])
def test_a_cut_is_seen(cut: int, tmp_path: Path) -> None:
    """A tar that ends early is an error, wherever it ends."""
    good = member(b"k/a.jpg", b"image") + END
    assert len(good) == 2048
    with pytest.raises(ShardError):
        parse(good[:cut], tmp_path)


class _Counted(bytes):
    """Bytes that count how many of them were copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, bytes):
            _Counted.copied += len(found)
            return _Counted(found)
        return found


def test_a_pax_header_is_read_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the largest header, full of the shortest records, each byte is copied a few times only."""
    records = b"5 a=\n" * (1 << 17)
    header = block(b"x", b"%011o\0" % len(records)) + records + padding(len(records))
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda *where: _Counted(read(*where)))

    found = parse(header + member(b"a.jpg", b"it") + END, tmp_path)

    assert found == [(b"a.jpg", b"it")]
    assert _Counted.copied < 10 * len(records)
