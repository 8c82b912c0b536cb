"""What goes wrong on the way ends in one clear error, or in a pack that can be repeated."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packing import KINDS, content, interrupted_after, originals

from fastdata.converters import job
from fastdata.converters.pack import pack
from fastdata.errors import (
    DestinationError,
)


@KINDS
@pytest.mark.parametrize("count", [0, 1, 7, 11])
def test_an_interrupted_pack_leaves_nothing_partial(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    """No temporary file, no lock, no manifest; the same command then ends as if never stopped."""
    (tmp_path / "fresh").mkdir()
    pack(source, tmp_path / "fresh" / name, shard_size=5000)
    out = tmp_path / name
    with monkeypatch.context() as patch:
        patch.setattr(job, "read_all", interrupted_after(count))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=5000)

    left = originals(tmp_path)
    assert not [file for file in left if file.endswith((".tmp", ".lock", "dataset.json.x"))]
    assert out.exists() == any(file.startswith("shards/shard-") for file in left)
    if out.exists():
        whole = content(tmp_path / "fresh" / name)
        ours = {file: data for file, data in content(out).items() if file != ".pack.json"}
        assert ours.items() <= whole.items()

    pack(source, out, shard_size=5000)

    assert content(out) == content(tmp_path / "fresh" / name)


SLOW = """
import sys, time
from fastdata.converters.pack import pack
def progress(done, *_):
    if done == 9:
        print("nine", flush=True)
        time.sleep(60)
pack(sys.argv[1], sys.argv[2], shard_size=5000, progress=progress)
"""


@KINDS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_middle(
    source: Path, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    """Control-C cleans up at once, kill -9 cannot; either way the next pack ends as it should."""
    (tmp_path / "fresh").mkdir()
    pack(source, tmp_path / "fresh" / name, shard_size=5000)
    command = [sys.executable, "-c", SLOW, str(source), str(tmp_path / name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"nine\n"
        child.send_signal(number)
        assert child.wait(10) == -number

    debris = [file for file in originals(tmp_path) if file.endswith((".tmp", ".lock"))]
    assert (debris == []) == (number == signal.SIGINT)

    pack(source, tmp_path / name, shard_size=5000)

    assert content(tmp_path / name) == content(tmp_path / "fresh" / name)
    assert sorted(os.listdir(tmp_path)) == sorted(["source", "fresh", name])


def test_another_pack_does_not_take_over_unfinished_work(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole shards of another source or with other options go only with overwrite."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(job, "read_all", interrupted_after(9))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=2000)
    before = content(out)

    with pytest.raises(DestinationError, match="unfinished pack of another source"):
        pack(source, out, shard_size=3000)
    assert content(out) == before

    assert pack(source, out, shard_size=3000, overwrite=True).samples == 12


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
