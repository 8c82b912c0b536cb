"""The command line as a user meets it: exit codes, messages, JSON."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fastdata


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "fastdata", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


def _refused(code: int, *arguments: str | Path) -> str:
    """The message of a command that must fail with this code, without a traceback."""
    done = _run(*arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_pack_and_info(folder: Path, tmp_path: Path) -> None:
    """Packing prints what it did; info describes both kinds of packs and the folder."""
    done = _run("pack", folder, tmp_path / "out")
    again = _run("pack", folder, tmp_path / "out")
    lmdb = _run("pack", folder, tmp_path / "out.lmdb", "--json")

    assert done.returncode == again.returncode == lmdb.returncode == 0
    assert "23" in done.stdout
    assert "already complete" in again.stdout
    report = json.loads(lmdb.stdout)
    assert (report["samples"], report["classes"], report["skipped"]) == (23, 3, [])
    for path, kind in [
        (folder, "folder"),
        (tmp_path / "out", "tar"),
        (tmp_path / "out.lmdb", "lmdb"),
    ]:
        facts = json.loads(_run("info", path, "--json").stdout)
        assert (facts["kind"], facts["samples"]) == (kind, 23)
        assert facts["classes"] == {"ant": 8, "bee": 8, "cat": 7}
        assert _run("info", path).returncode == 0


def test_skipped_files(folder: Path, tmp_path: Path) -> None:
    """A file that is no image is skipped, named and counted; --strict makes it an error."""
    for path in folder.rglob("*.jpg"):
        copy = tmp_path / "src" / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tmp_path / "src/ant/[bold]notes.jpg").write_text("no image")

    done = _run("pack", tmp_path / "src", tmp_path / "out")

    assert done.returncode == 0
    assert "ant/[bold]notes.jpg" in done.stdout
    assert "notes.jpg" in _refused(2, "pack", tmp_path / "src", tmp_path / "other", "--strict")
    assert not (tmp_path / "other/dataset.json").exists()


def test_bad_input_is_2(folder: Path, tmp_path: Path) -> None:
    """Missing sources, occupied destinations, no data sets and wrong usage end with code 2."""
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied/thesis.tex").write_text("all of it")

    assert "nowhere" in _refused(2, "pack", tmp_path / "nowhere", tmp_path / "out")
    assert "occupied" in _refused(2, "pack", folder, tmp_path / "occupied", "--overwrite")
    assert "nowhere" in _refused(2, "info", tmp_path / "nowhere")
    assert "furlong" in _refused(2, "pack", folder, tmp_path / "out", "--shard-size", "3 furlongs")
    assert "nosuchmodel" in _refused(
        2, "train", folder, "--batch-size", "4", "--model", "nosuchmodel"
    )
    assert "batch_size" in _refused(2, "train", folder, "--batch-size", "0")
    assert "source" in _refused(2, "pack")
    assert (tmp_path / "occupied/thesis.tex").read_text() == "all of it"
    assert not (tmp_path / "out").exists()


def test_damage_is_1(folder: Path, tmp_path: Path) -> None:
    """A truncated shard, a damaged catalog and a damaged manifest each end with code 1."""
    fastdata.pack(folder, tmp_path / "set")
    for name in ("shard-000000.tar", "catalog.fdc", "dataset.json"):
        path = tmp_path / "set" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-100])

        assert name in _refused(1, "info", tmp_path / "set")
        path.write_bytes(whole)
    assert _run("info", tmp_path / "set").returncode == 0


def test_interrupt_is_130(tmp_path: Path) -> None:
    """SIGINT while packing ends with code 130, no traceback, and nothing under a final name."""
    source = tmp_path / "src"
    source.mkdir()
    os.mkfifo(tmp_path / "gate")
    code = (
        "import sys, fastdata.converters.read as read, fastdata.cli as cli\n"
        "from fastdata.converters import job\n"
        "def slow(*a, **k):\n"
        f"    open({str(tmp_path / 'gate')!r}, 'w').close()\n"
        "    import time; time.sleep(40)\n"
        "job.read_all = slow\n"
        f"sys.argv = ['fastdata', 'pack', {str(source)!r}, {str(tmp_path / 'out')!r}]\n"
        "cli.main()\n"
    )
    (source / "a.jpg").write_bytes(b"\xff\xd8\xff")
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stderr=subprocess.PIPE)
    (tmp_path / "gate").read_bytes()  # waits until the pack is under way
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)

    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version(argument: str) -> None:
    """Help lists the commands, and the version is the package's."""
    done = _run(argument)

    assert done.returncode == 0
    assert ("pack" if argument == "--help" else fastdata.__version__) in done.stdout
