"""The command as a process: signals, streams that are closed or broken, names that are not text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from packing import picture

from fastdata.converters.check.verify import verify

COMMAND = [sys.executable, "-P", "-m", "fastdata"]
ESCAPES = "a\x1b]0;owned\x07\u202eb\nerror: c"


# Noise on descriptors 1 and 2 stands for a C library's warnings.
_NOISY = """
import os, sys
import fastdata.cli
from fastdata.converters import pack_run
real = pack_run.read_all
def noisy(*arguments):
    for sample in real(*arguments):
        os.write(1, b"warning" * 100)
        os.write(2, b"warning" * 100)
        yield sample
pack_run.read_all = noisy
sys.argv = ["fastdata", "pack", *sys.argv[1:]]
fastdata.cli.main()
"""


@pytest.mark.parametrize("name", ["set", "set.lmdb"])
def test_closed_standard_streams_are_not_packed_into(
    tmp_path: Path, folder: Path, name: str
) -> None:
    """What is printed goes nowhere, and not into files that would have got descriptors 0 to 2."""
    shell = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    done = subprocess.run(
        [*shell, sys.executable, "-P", "-c", _NOISY, str(folder), str(tmp_path / name)],
        check=False,
        timeout=240,
    )

    assert done.returncode == 0
    assert verify(tmp_path / name).problems == ()


# Each import forks a child, which gets Ctrl-C there, and must leave at once and in silence.
_INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        Interrupt.begun |= name == "fastdata.cli.standard_streams"
        if not Interrupt.begun:
            return None
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # the handler runs between two instructions
                pass
            os._exit(99)
        Interrupt.codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

Interrupt.begun, Interrupt.codes = False, {}
sys.meta_path.insert(0, Interrupt())
before = {*sys.modules, "_editable_skbc_fastdata"}
from fastdata.cli import main
heavy = set(sys.modules) - before - {"fastdata", "fastdata.cli", "fastdata.errors"}
assert "typing" not in heavy and not any("fastdata" in name for name in heavy), heavy
try:
    main()
finally:
    wrong = {name: code for name, code in Interrupt.codes.items() if code != 130}
    os.write(1, f"{len(Interrupt.codes)} imports, {wrong} left otherwise".encode())
"""


def test_an_interrupt_within_any_import_leaves_with_130(folder: Path) -> None:
    """Ctrl-C at each import in turn, from the first: exit code 130, and nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _INTERRUPTED, "info", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert done.stderr == ""
    imports, _, wrong = done.stdout.rpartition("\n")[2].partition(" imports, ")
    assert wrong == "{} left otherwise"
    assert int(imports) > 100


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    """A shell starts jobs in the background with SIGINT ignored."""
    code = (
        "import signal, sys, fastdata.cli as cli\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "sys.argv = ['fastdata', '--version']\n"
        "try: cli.main()\n"
        "finally: assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    )

    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["--help"]])
def test_a_reader_that_is_gone_ends_the_command_in_silence(
    folder: Path, arguments: list[str]
) -> None:
    """The exit code is the one that a shell shows where SIGPIPE ends a program."""
    reader, writer = os.pipe()
    os.close(reader)
    path = [str(folder)] if "info" in arguments else []
    with open(writer, "wb") as output:
        done = subprocess.run(
            [*COMMAND, *arguments, *path], stdout=output, stderr=subprocess.PIPE, check=False
        )

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_under_the_output_is_no_traceback(folder: Path, stream: str) -> None:
    """What cannot be written is an error, of which is told where that can be."""
    command = [*COMMAND, "info", str(folder) if stream == "stdout" else "nowhere"]
    with open("/dev/full", "wb") as full:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        done = subprocess.run(command, check=False, **pipes)  # type: ignore[call-overload]

    assert done.returncode == 2
    assert not done.stdout
    message = b"error: cannot write the output: No space left on device\n"
    assert done.stderr == (message if stream == "stdout" else None)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_reach_the_terminal_as_text_alone(tmp_path: Path, encoding: str) -> None:
    """Control characters, marks of direction and bytes that are no text are shown escaped."""
    source = tmp_path / "source"
    for number, name in enumerate((ESCAPES, os.fsdecode(b"x\xff"))):
        (source / name).mkdir(parents=True)
        (source / name / "a.jpg").write_bytes(picture(number))
    (source / ESCAPES / "b.jpg").write_bytes(picture(1)[:300])
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in (
        ("info", f"no{ESCAPES}"),
        ("pack", source, tmp_path / "set"),
        ("info", tmp_path / "set"),
        ("pack", source, tmp_path / "other", "--strict"),
    ):
        done = subprocess.run(
            [*COMMAND, *command],
            capture_output=True,
            env={**os.environ, **(locale if encoding == "ascii" else {})},
            check=False,
        )
        shown = (done.stdout + done.stderr).decode(encoding)
        assert "Traceback" not in shown
        assert all(c.isprintable() for c in shown.replace("\n", ""))
        assert "\\x1b]0;owned\\x07" in shown
        assert "error: c" not in shown.splitlines()
