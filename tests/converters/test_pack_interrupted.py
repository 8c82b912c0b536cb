"""What goes wrong on the way ends in one clear error, or in a pack that can be repeated."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packing import KINDS, content, interrupted_after, load, originals, picture

from fastdata.converters import pack_run
from fastdata.converters.pack import pack
from fastdata.errors import DestinationError, SourceError

SIZE = 3000  # as good as any for shards, and less than a page of an LMDB


def interrupted(source: Path, out: Path, count: int, shard_size: int = SIZE) -> None:
    """Begin a pack that a Control-C ends after so many files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack_run, "read_all", interrupted_after(count))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=shard_size)


@KINDS
@pytest.mark.parametrize("count", [0, 1, 7, 11])
def test_an_interrupted_pack_leaves_nothing_partial(
    source: Path, tmp_path: Path, name: str, count: int
) -> None:
    """Whole shards stay, with a journal; the same command then ends as if never stopped."""
    (tmp_path / "fresh").mkdir()
    pack(source, tmp_path / "fresh" / name, shard_size=SIZE)
    (tmp_path / "there").mkdir()
    out = tmp_path / "there" / name
    interrupted(source, out, count)

    left = originals(tmp_path / "there")
    assert bool(left) == (count > 1)
    if name == "shards":
        whole = content(tmp_path / "fresh" / name)
        shards = {Path(file).name: data for file, data in left.items() if "shard-" in file}
        assert shards.items() <= whole.items()
        assert set(left) - {f"shards/{file}" for file in shards} <= {"shards/.pack.journal"}
        assert out.exists() == bool(left)
    else:
        assert set(left) <= {"one.lmdb.tmp", "one.lmdb.journal"}

    report = pack(source, out, shard_size=SIZE)

    assert (report.resumed > 0) == (count > 1)
    assert report.resumed < 12
    assert content(out) == content(tmp_path / "fresh" / name)
    assert os.listdir(tmp_path / "there") == [name]


@KINDS
def test_an_interrupted_pack_reads_nothing_twice(source: Path, tmp_path: Path, name: str) -> None:
    """Of whole shards the files are not read again; report and progress count them all the same."""
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    fresh = pack(source, tmp_path / "fresh.d" / name, shard_size=SIZE)
    interrupted(source, tmp_path / name, 11)
    calls: list[tuple[int, int, int, int]] = []

    report = pack(
        source, tmp_path / name, shard_size=SIZE, progress=lambda *state: calls.append(state)
    )

    assert report.resumed > 0
    assert 0 < len(calls) <= 13 - report.resumed
    assert calls[-1][0] == calls[-1][2] == 13
    assert calls[-1][1] == calls[-1][3]
    same = ("samples", "source_bytes", "image_bytes", "skipped", "skipped_counts", "not_recoded")
    for what in same:
        assert getattr(report, what) == getattr(fresh, what), what
    assert (fresh.resumed, fresh.already_complete, report.already_complete) == (0, False, False)


@KINDS
def test_whatever_was_left_out_is_reported_after_any_interruption(
    source: Path, tmp_path: Path, name: str
) -> None:
    """skipped.jsonl holds each entry once, sorted, and is the one that the manifest describes."""
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    (source / "cat/empty.jpg").touch()
    with open(os.fsencode(source / "ant") + b"/\xff.jpg", "wb") as file:
        file.write(b"no image")
    out = tmp_path / name
    for count in (3, 2, 4, 2):
        interrupted(source, out, count)
    report = pack(source, out, shard_size=SIZE)

    path = out / "skipped.jsonl" if out.is_dir() else tmp_path / "one.lmdb.skipped.jsonl"
    data = path.read_bytes()
    entries = [json.loads(line) for line in data.splitlines()]
    assert [tuple(entry.values()) for entry in entries] == list(report.skipped)
    assert [entry["name"] for entry in entries] == [
        "ant/\udcff.jpg",
        "bee/cut.jpg",
        "cat/empty.jpg",
    ]
    stored = load(out).report
    assert stored is not None
    assert stored.bytes == len(data)
    assert stored.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"


@KINDS
def test_a_list_of_what_was_left_out_does_not_outlive_its_reason(
    source: Path, tmp_path: Path, name: str
) -> None:
    """Packed again without a file that was left out, there is no such list any more."""
    (source / "cat/empty.jpg").touch()
    pack(source, tmp_path / "out.d" / name)
    (source / "cat/empty.jpg").unlink()

    pack(source, tmp_path / "out.d" / name, overwrite=True)

    assert not list((tmp_path / "out.d").rglob("*skipped*"))
    assert load(tmp_path / "out.d" / name).report is None


@KINDS
def test_strict_minds_what_an_interrupted_pack_left_out(
    source: Path, tmp_path: Path, name: str
) -> None:
    """A file that was left out before is an error of the strict pack that continues."""
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    interrupted(source, tmp_path / name, 12)
    options = {"shard_size": SIZE, "shuffle": True}

    with pytest.raises(SourceError, match=r"bee/cut.jpg: .*without --strict"):
        pack(source, tmp_path / name, strict=True, **options)  # type: ignore[arg-type]
    assert pack(source, tmp_path / name, shard_size=SIZE).samples == 12


def test_shards_that_are_gone_are_written_again(source: Path, tmp_path: Path) -> None:
    """A record without its shard counts for nothing, and so do all behind it."""
    out = tmp_path / "out"
    pack(source, tmp_path / "fresh", shard_size=SIZE)
    interrupted(source, out, 11)
    assert len(list(out.glob("*.tar"))) > 4
    (out / "shard-000001.tar").write_bytes(b"cut")
    (out / "shard-000003.idx").unlink()

    assert pack(source, out, shard_size=SIZE).resumed == 1
    assert content(out) == content(tmp_path / "fresh")


# Short sleeps: a signal between Python's last look and the system call does not end a sleep.
SLOW = """
import sys, time
from fastdata.converters.pack import pack
def progress(done, *_):
    if done == 9:
        print("nine", flush=True)
        for _ in range(600):
            time.sleep(0.1)
pack(sys.argv[1], sys.argv[2], shard_size=3000, progress=progress)
"""


@KINDS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_middle(
    source: Path, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    """Control-C cleans up at once, kill -9 cannot; either way the next pack ends as it should."""
    (tmp_path / "fresh").mkdir()
    pack(source, tmp_path / "fresh" / name, shard_size=SIZE)
    command = [sys.executable, "-c", SLOW, str(source), str(tmp_path / name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"nine\n"
        child.send_signal(number)
        assert child.wait(240) == -number

    left = originals(tmp_path)
    debris = [file for file in left if file.endswith((".tar.tmp", ".lock"))]
    assert (debris == []) == (number == signal.SIGINT)

    pack(source, tmp_path / name, shard_size=SIZE)

    assert content(tmp_path / name) == content(tmp_path / "fresh" / name)
    assert sorted(os.listdir(tmp_path)) == sorted(["source", "fresh", name])


@KINDS
def test_another_pack_does_not_take_over_unfinished_work(
    source: Path, tmp_path: Path, name: str
) -> None:
    """Whole shards of another source or with other options go only with overwrite."""
    out = tmp_path / name
    interrupted(source, out, 9)
    before = originals(tmp_path)

    with pytest.raises(DestinationError, match="unfinished pack of another source"):
        pack(source, out, shard_size=4000)
    assert originals(tmp_path) == before

    report = pack(source, out, shard_size=4000, overwrite=True)

    assert (report.samples, report.resumed) == (12, 0)


@KINDS
def test_a_full_disk_is_one_clear_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It names the path, what is needed and what is free; the system's error is the cause."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(DestinationError, match=r"No space left.*bytes more, \d+ are free") as info:
        pack(source, tmp_path / name)

    assert str(tmp_path / name) in str(info.value)
    assert isinstance(info.value.__cause__, OSError)
    assert os.listdir(tmp_path) == ["source"]


def test_a_limit_on_the_size_of_files_is_told(source: Path, tmp_path: Path) -> None:
    """A real failing write, of the kernel's making, inside LMDB and in a shard."""
    script = """
import resource, signal, sys
from fastdata.converters.pack import pack
from fastdata.errors import DestinationError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    pack(sys.argv[1], sys.argv[2])
except DestinationError as error:
    print(error)
"""
    for name in ("out", "out.lmdb"):
        command = [sys.executable, "-c", script, str(source), str(tmp_path / name)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "are free" in result.stdout, result
        assert os.listdir(tmp_path) == ["source"]


def test_an_error_of_the_callback_is_the_callers(source: Path, tmp_path: Path) -> None:
    """A broken pipe of the progress bar is not blamed on the destination."""

    def broken(*_: int) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        pack(source, tmp_path / "out", progress=broken)
    assert os.listdir(tmp_path) == ["source"]


@KINDS
def test_fields_survive_an_interruption(source: Path, tmp_path: Path, name: str) -> None:
    """Fields of samples that were packed before lie where the catalog says, with those after."""
    for number, path in enumerate(sorted(source.glob("*/*.jpg"))):
        if number % 3:
            path.with_suffix(".txt").write_text(f"{path.name}" * number, errors="replace")
    options = {"shard_size": SIZE, "fields": ("txt",)}
    pack(source, tmp_path / "fresh.d" / name, **options)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack_run, "read_all", interrupted_after(9))
        with pytest.raises(KeyboardInterrupt):
            pack(source, tmp_path / "out.d" / name, **options)  # type: ignore[arg-type]

    report = pack(source, tmp_path / "out.d" / name, **options)  # type: ignore[arg-type]

    assert report.resumed > 0
    assert load(tmp_path / "out.d" / name).fields == ("txt",)
    assert originals(tmp_path / "out.d") == originals(tmp_path / "fresh.d")
