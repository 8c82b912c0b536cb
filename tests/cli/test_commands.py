"""The command line as a user meets it: exit codes, messages, JSON."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import fastdata
from fastdata.cli import commands


class _Done(NamedTuple):
    """What a command left behind, as of a process."""

    returncode: int
    stdout: str
    stderr: str


def _run(*arguments: str | Path) -> _Done:
    """Run a command in this process: starting one for each takes far longer than the command."""
    given = ["fastdata", *map(str, arguments)]
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()) as stdout,
        redirect_stderr(io.StringIO()) as stderr,
    ):
        patch.setattr(sys, "argv", given)
        try:
            code = commands.run()
        except SystemExit as end:  # of usage errors
            code = int(end.code or 0)
    return _Done(code, stdout.getvalue(), stderr.getvalue())


def _start(*arguments: str | Path) -> _Done:
    """Run a command as a process of its own."""
    command = [sys.executable, "-P", "-m", "fastdata", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    return _Done(done.returncode, done.stdout, done.stderr)


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


def test_path_that_cannot_be_made_is_2(tmp_path: Path) -> None:
    """Where the system refuses a path that the user named, the error names it."""
    (tmp_path / "file").touch()

    assert f"{tmp_path / 'file'}: File exists" in _refused(2, "demo", tmp_path / "file")


def test_exit_codes_are_those_of_the_process(folder: Path, tmp_path: Path) -> None:
    """A shell sees 0 of what was done, 1 of damage and 2 of bad input, each with its message."""
    fastdata.pack(folder, tmp_path / "set")
    done = _start("info", tmp_path / "set", "--json")
    (tmp_path / "set/dataset.json").write_bytes(b"{}")
    damaged = _start("info", tmp_path / "set")
    missing = _start("info", tmp_path / "nowhere")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["samples"] == 23
    for code, name, found in [(1, "dataset.json", damaged), (2, "nowhere", missing)]:
        assert (found.returncode, found.stdout) == (code, "")
        assert name in found.stderr
        assert "Traceback" not in found.stderr


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
        "import sys, fastdata.cli as cli\n"
        "from fastdata.converters import pack_run\n"
        "def slow(*a, **k):\n"
        f"    open({str(tmp_path / 'gate')!r}, 'w').close()\n"
        # Short: a signal between Python's last look and the system call does not end a sleep.
        "    import time; [time.sleep(0.1) for _ in range(400)]\n"
        "pack_run.read_all = slow\n"
        f"sys.argv = ['fastdata', 'pack', {str(source)!r}, {str(tmp_path / 'out')!r}]\n"
        "cli.main()\n"
    )
    (source / "a.jpg").write_bytes(b"\xff\xd8\xff")
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stderr=subprocess.PIPE)
    (tmp_path / "gate").read_bytes()  # waits until the pack is under way
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=240)

    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert not (tmp_path / "out").exists()


def test_verify_and_repair(folder: Path, tmp_path: Path) -> None:
    """A whole data set is 0, damage is 1 with the key, repair from the source makes it whole."""
    fastdata.pack(folder, tmp_path / "set", shard_size=15_000)
    shard = tmp_path / "set/shard-000001.tar"
    whole = shard.read_bytes()
    (sample,) = (s for s in fastdata.open(tmp_path / "set", decode=False) if s.id == 9)
    damaged = bytearray(whole)
    damaged[whole.index(sample.image) + 400] ^= 1

    assert _run("verify", tmp_path / "set").returncode == 0
    shard.write_bytes(damaged)
    found = _run("verify", tmp_path / "set", "--json")
    assert found.returncode == 1
    keys = {problem["key"] for problem in json.loads(found.stdout)["problems"]}
    assert sample.key in keys
    assert sample.key in _run("verify", tmp_path / "set").stdout
    mended = _run("verify", tmp_path / "set", "--repair", "--source", folder)
    assert mended.returncode == 0
    assert "shard-000001.tar" in mended.stdout
    assert shard.read_bytes() == whole
    (tmp_path / "set/dataset.json").write_bytes(b"{}")
    assert _run("verify", tmp_path / "set").returncode == 1
    assert "nowhere" in _refused(2, "verify", tmp_path / "nowhere")


def test_index_of_other_tars(folder: Path, tmp_path: Path) -> None:
    """Tars of another tool become a data set where they are."""
    (tmp_path / "tars").mkdir()
    with tarfile.open(tmp_path / "tars/some.tar", "w") as tar:
        for path in sorted(folder.rglob("*.jpg")):
            tar.add(path, path.name)

    done = _run("index", tmp_path / "tars", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 23
    assert json.loads(_run("info", tmp_path / "tars", "--json").stdout)["samples"] == 23
    assert _run("verify", tmp_path / "tars").returncode == 0


@pytest.mark.parametrize("name", ["set", "set.lmdb"])
def test_export_comes_back(folder: Path, tmp_path: Path, name: str) -> None:
    """What was packed with bytes kept is exported byte by byte."""
    fastdata.pack(folder, tmp_path / name, keep_bytes=True)

    assert _run("export", tmp_path / name, tmp_path / "back").returncode == 0
    for path in folder.rglob("*.jpg"):
        copy = tmp_path / "back" / path.relative_to(folder)
        assert copy.read_bytes() == path.read_bytes()


def test_show_draws_a_sheet(folder: Path, tmp_path: Path) -> None:
    """A contact sheet is an image of the size that the command states."""
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")

    done = _run("show", folder, "-o", tmp_path / "sheet.png", "--count", "6", "--crops", "32")

    assert done.returncode == 0, done.stderr
    with image.open(tmp_path / "sheet.png") as sheet:
        assert f"{sheet.width:,} x {sheet.height:,}" in done.stdout


@pytest.mark.parametrize("name", ["set", "set.lmdb"])
def test_split(folder: Path, tmp_path: Path, name: str) -> None:
    """Parts are data sets of their own, with the classes of the whole, and make the whole."""
    split = "train=0.7,val=0.3"
    done = _run("pack", folder, tmp_path / name, "--split", split, "--json")

    assert done.returncode == 0, done.stderr
    parts = json.loads(done.stdout)["parts"]
    assert list(parts) == ["train", "val"]
    keys: list[str] = []
    for part in parts.values():
        data = fastdata.open(part["path"], decode=False)
        assert data.source.classes == ("ant", "bee", "cat")
        keys += [sample.key for sample in data]
    assert len(keys) == len(set(keys)) == 23
    again = json.loads(_run("pack", folder, tmp_path / name, "--split", split, "--json").stdout)
    assert again["already_complete"]
    assert "no sample falls to" in _refused(
        2, "pack", folder, tmp_path / "other", "--split", "a=0.999999,b=0.000001"
    )


def test_info_compares_orders(folder: Path, tmp_path: Path) -> None:
    """Each order is named with how it mixes."""
    fastdata.pack(folder, tmp_path / "set")

    rows = json.loads(_run("info", tmp_path / "set", "--order", "--json").stdout)

    assert [row["order"] for row in rows] == ["full shuffle", "window", "as packed"]
    assert "full shuffle" in _run("info", tmp_path / "set", "--order").stdout


def test_dry_run_writes_nothing(folder: Path, tmp_path: Path) -> None:
    """It says how much there is to pack, within what a guess may be off."""
    done = _run("pack", folder, tmp_path / "out", "--dry-run", "--json")

    plan = json.loads(done.stdout)
    assert plan["samples"] == 23
    assert plan["classes"] == {"ant": 8, "bee": 8, "cat": 7}
    assert not (tmp_path / "out").exists()
    size = fastdata.pack(folder, tmp_path / "out").bytes
    assert 0.5 < plan["bytes"] / size < 2


def test_lists_and_fields(folder: Path, tmp_path: Path) -> None:
    """A CSV names files, labels and fields; sidecar files are fields of their images."""
    (tmp_path / "list.csv").write_text(
        "path,label,caption\nant/000.jpg,small,an ant\n"
        "bee/001.jpg,small,\ncat/002.jpg,large,a cat\n"
    )
    assert (
        _run("pack", folder, tmp_path / "listed", "--manifest", tmp_path / "list.csv").returncode
        == 0
    )
    samples = {s.key: s for s in fastdata.open(tmp_path / "listed", decode=False)}
    assert {s.label for s in samples.values()} == {0, 1}
    assert samples["ant/000"].fields["caption"] == b"an ant"

    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jpg").write_bytes((folder / "ant/000.jpg").read_bytes())
    (source / "a.txt").write_text("beside it")
    assert _run("pack", source, tmp_path / "beside.lmdb", "--fields", "txt").returncode == 0
    (sample,) = fastdata.open(tmp_path / "beside.lmdb", decode=False)
    assert sample.fields == {"txt": b"beside it"}
    assert "cls" in _refused(2, "pack", source, tmp_path / "no", "--fields", "cls")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version(argument: str) -> None:
    """Help lists the commands, and the version is the package's."""
    done = _start(argument)

    assert done.returncode == 0
    assert ("pack" if argument == "--help" else fastdata.__version__) in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["pack", "a", "b", "x\u202ey"], ["x\u202ey"], ["--x\u202ey"], ["bench", "\u202e"]],
)
def test_usage_errors_escape_what_was_typed(arguments: list[str]) -> None:
    """Text direction marks that a usage error repeats are printed as escapes."""
    done = CliRunner().invoke(commands.app, arguments)

    assert done.exit_code == 2
    assert "\\u202e" in done.output
    assert "\u202e" not in done.output
