"""Files appear whole or not at all; a lock keeps a second process out."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from fastdata.errors import BusyError, DestinationError
from fastdata.system.files import Lock, open_own, temporary, write_atomically
from fastdata.system.untrusted import read_regular

HOLD = """
import sys, time
from pathlib import Path
from fastdata.system.files import Lock
with Lock(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""

CONTEND = """
import os, sys
from pathlib import Path
from fastdata.errors import BusyError
from fastdata.system.files import Lock
lock, inside = Path(sys.argv[1]), sys.argv[2]
turns = 0
while turns < 30:
    try:
        with Lock(lock, "it"):
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails if another is inside
            os.unlink(inside)
            turns += 1
    except BusyError:
        pass
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A child process that holds the lock at ``tmp_path / "a.lock"``."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "a.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
        child.kill()


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    """The content is there, under the final name alone."""
    write_atomically(tmp_path / "a", b"content")

    assert (tmp_path / "a").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["a"]


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    """An error half-way leaves the old file and no temporary one."""
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    """Files are as readable as any other program's, not private as tempfile's are."""
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"")
    finally:
        os.umask(before)

    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_temporary_name_ends_in_tmp() -> None:
    """No reader that looks for *.tar finds an unfinished shard."""
    assert temporary(Path("x/shard-000000.tar")) == Path("x/shard-000000.tar.tmp")


def test_a_lock_keeps_another_process_out(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """While the holder lives, taking the lock is an error that names it."""
    with pytest.raises(BusyError, match=f"data: process {holder.pid} ") as caught:
        Lock(tmp_path / "a.lock", "data").__enter__()

    assert "Error" not in str(caught.value)


def test_a_lock_of_a_dead_process_is_taken_over(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    """A holder that was killed leaves its file but not its lock."""
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    assert (tmp_path / "a.lock").exists()
    with Lock(tmp_path / "a.lock", "data"):
        assert (tmp_path / "a.lock").read_text() == f"{os.getpid()}\n"


def test_a_released_lock_leaves_no_file(tmp_path: Path) -> None:
    """The file goes at release, also when the work inside failed; the lock can be had again."""
    path = tmp_path / "a.lock"
    with pytest.raises(ZeroDivisionError), Lock(path, "data"):
        raise ZeroDivisionError
    assert not path.exists()

    with Lock(path, "data"), pytest.raises(BusyError):
        Lock(path, "data").__enter__()


def test_one_process_at_a_time_is_inside(tmp_path: Path) -> None:
    """Removal at release opens no gap: a lock on a removed file does not count."""
    command = [sys.executable, "-c", CONTEND, str(tmp_path / "a.lock"), str(tmp_path / "inside")]
    children = [subprocess.Popen(command) for _ in range(4)]

    assert [child.wait() for child in children] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["a.lock", "b.lock"])
def test_a_lock_is_no_link(tmp_path: Path, name: str) -> None:
    """What a link leads to is neither truncated nor made; the error names the link."""
    (tmp_path / "a.lock").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_text("precious")
    os.link(tmp_path / "victim", tmp_path / "b.lock")

    with pytest.raises(DestinationError, match=rf"{name}: a (symbolic|hard) link"):
        Lock(tmp_path / name, "data").__enter__()

    assert (tmp_path / "victim").read_text() == "precious"


def test_errors_name_the_whole_path(tmp_path: Path) -> None:
    """Although names are looked up in an open folder."""
    (tmp_path / "a.tmp").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_atomically(tmp_path / "a", b"")
    assert caught.value.filename == str(tmp_path / "a.tmp")

    with pytest.raises(FileNotFoundError) as missing:
        open_own(tmp_path / "b")
    assert missing.value.filename == str(tmp_path / "b")


def test_a_name_is_looked_up_in_the_folder_that_was_opened(tmp_path: Path) -> None:
    """A folder that is exchanged for a link while it is written to changes nothing."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()

    def exchange(file: BinaryIO) -> None:
        (tmp_path / "mine").rename(tmp_path / "moved")
        (tmp_path / "mine").symlink_to(tmp_path / "other")
        file.write(b"content")

    write_atomically(tmp_path / "mine/a", exchange)

    assert (tmp_path / "moved/a").read_bytes() == b"content"
    assert os.listdir(tmp_path / "other") == []


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """A hole of a terabyte in the place of a manifest is an error, not memory."""
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(OSError, match="larger than 1073741824 bytes"):
        read_regular(tmp_path / "a")
