"""What `make` says before it installs anything."""

import subprocess
import sys
from pathlib import Path

import pytest

PREFLIGHT = Path(__file__).parent.parent / "tools" / "preflight.py"


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
