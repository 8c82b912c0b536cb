"""What `make` says before it installs anything."""

import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

PREFLIGHT = ROOT / "tools" / "preflight.py"


@pytest.mark.parametrize(
    ("manager", "line"),
    [("apt-get", "apt-get install -y g++"), ("dnf", "dnf install -y gcc-c++")],
)
def test_a_missing_compiler_has_its_command(tmp_path: Path, manager: str, line: str) -> None:
    """Without a compiler the system's command for it is named, and the exit code is still 0."""
    program = tmp_path / manager
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    done = subprocess.run(
        [sys.executable, PREFLIGHT],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert line in done.stderr
    assert "Going on without the native core" in done.stderr
    assert done.stdout.endswith(" without core\n")


def test_the_state_is_one_line_that_does_not_change() -> None:
    """Two runs print the same single line, so that `make` leaves .venv alone."""
    first, second = (
        subprocess.run([sys.executable, PREFLIGHT], capture_output=True, check=True).stdout
        for _ in range(2)
    )

    assert first == second
    assert first.count(b"\n") == 1


REFUSED = [
    "import pickle", "from pickle import loads", "import marshal as m", "from shelve import open",
    "eval(text)", "exec(text)", "compile(text, name, mode)", "__import__(name)",
    "os.system(command)", "from os import system", "run = os.popen", "run(command, shell=True)",
    "Popen(command, shell=flag)", "archive.extractall()", "archive.extract(member)",
    "shutil.unpack_archive(path)", "torch.load(path)", "torch.load(path, weights_only=False)",
    "torch.load(path, weights_only=flag)", "np.load(path, allow_pickle=True)", "yaml.load(text)",
    "def f():\n    import cloudpickle",
]  # fmt: skip
ALLOWED = [
    "model.eval()", "re.compile(text)", "torch.compile(model)", "subprocess.run(command)",
    "run(command, shell=False)", "torch.load(path, weights_only=True)", "np.load(path)",
    "# import pickle", "text = 'eval(x)'", "json.loads(text)", "yaml.safe_load(text)",
    "executor.submit(task)", "def load(): ...",
]  # fmt: skip


def _calls(root: Path) -> subprocess.CompletedProcess[str]:
    """Runs the check over a tree of its own: `preflight.py` looks beside the folder it is in."""
    (root / "tools").mkdir(exist_ok=True)
    copy = root / "tools/preflight.py"
    copy.write_bytes(PREFLIGHT.read_bytes())
    command = [sys.executable, str(copy), "--calls"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_file_of_the_package_calls_what_is_refused() -> None:
    """The package runs no code that came with data, no shell, and extracts no archive."""
    command = [sys.executable, str(PREFLIGHT), "--calls"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_refused_call_is_found(tmp_path: Path) -> None:
    """Each way to run code from data is named with file and line, and makes the check fail."""
    (tmp_path / "loaders/deep").mkdir(parents=True)
    for number, text in enumerate(REFUSED):
        (tmp_path / f"loaders/deep/m{number:02}.py").write_text(f"x = 1\n{text}\n")

    done = _calls(tmp_path)

    assert done.returncode == 1
    found = {line.split(": ")[1] for line in done.stderr.splitlines()}
    places = [f"loaders/deep/m{number:02}.py" for number in range(len(REFUSED))]
    assert {place.rpartition(":")[0] for place in found} == set(places)
    assert all(place.endswith((":2", ":3")) for place in found)


def test_what_only_looks_alike_is_allowed(tmp_path: Path) -> None:
    """Methods of the same name, safe variants, comments and text pass, and so does C++ that may."""
    (tmp_path / "fastdata").mkdir()
    (tmp_path / "csrc").mkdir()
    (tmp_path / "fastdata/fine.py").write_text("\n".join(ALLOWED))
    (tmp_path / "csrc/fine.cpp").write_text("// system(x)\nfile_system(x); snprintf(a, 1, b);\n")

    done = _calls(tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "csrc/fine.cpp").write_text("int a = 1;\nstd::system(command);\n")
    assert "csrc/fine.cpp:2: system(" in _calls(tmp_path).stderr
