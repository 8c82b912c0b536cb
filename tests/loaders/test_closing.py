"""Loaders end clearly: closed by another thread, at the interpreter's end, in a subinterpreter."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import transforms
from interrupting import interrupted
from places import HELPERS

import fastdata as fd
from fastdata.errors import OptionError
from fastdata.loaders.pipeline import DecodingPipeline

_CROP = fd.RandomResizedCrop(16)
_LIMIT = 240.0  # seconds; it only ends what hangs


def _program(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *map(str, args)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
    )


class _Meeting:
    """Lets another thread close a loader exactly when the consumer is at some place."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.closer = threading.Thread(target=close)
        self.met = False

    def come(self) -> None:
        """Start to close, and go on once that is under way."""
        if not self.met:
            self.met = True
            self.closer.start()
            self.closer.join(0.05)  # it may end, or wait for this thread


@pytest.mark.parametrize("before", ["_begin", "_wait", "_mend", "_send"])
@pytest.mark.parametrize("taken", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, {"transform": transforms.invert}])
def test_closed_by_another_thread(
    shards: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    taken: int,
    options: dict[str, Any],
) -> None:
    """Wherever next() is when another thread closes the loader, it gives a batch or says so."""
    loader = fd.Loader(shards, 4, crop=_CROP, threads=2, **options)
    meeting = _Meeting(loader.close)
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    step: Callable[..., Any] = getattr(DecodingPipeline, before)

    def stopped(*args: Any) -> Any:
        meeting.come()
        return step(*args)

    monkeypatch.setattr(DecodingPipeline, before, stopped)

    with pytest.raises(OptionError, match="closed"):
        list(batches)

    meeting.closer.join(_LIMIT)
    assert not meeting.closer.is_alive()
    with pytest.raises(OptionError, match="closed"):
        iter(loader)


def test_closed_while_a_transform_runs(shards: Path) -> None:
    """Closing does not wait for a process that works for the thread in next()."""
    loader = fd.Loader(shards, 4, crop=_CROP, transform=transforms.sleep, workers=1)
    found: list[BaseException] = []

    def consume() -> None:
        try:
            next(iter(loader))
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    loader.close()
    consumer.join(_LIMIT)

    assert [type(error) for error in found] == [OptionError]
    assert "closed" in str(found[0])


def test_closed_by_a_signal_handler(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread in next() may close the loader itself, as a handler of a signal does."""
    loader = fd.Loader(shards, 4, crop=_CROP, threads=2)
    wait: Callable[..., Any] = DecodingPipeline._wait

    def closing(*args: Any) -> Any:
        loader.close()
        return wait(*args)

    monkeypatch.setattr(DecodingPipeline, "_wait", closing)

    with pytest.raises(OptionError, match="closed"):
        next(iter(loader))


def test_closing_can_be_interrupted(tmp_path: Path) -> None:
    """After a Ctrl-C at any step of close(), another close() ends all threads."""
    (tmp_path / "a").mkdir()
    for number in range(8):
        assert cv2.imwrite(str(tmp_path / f"a/{number}.png"), np.zeros((60, 60, 3), np.uint8))
    step, more = 1, True
    while more:
        before = set(threading.enumerate())
        loader = fd.Loader(tmp_path, 4, crop=_CROP, threads=2)
        next(iter(loader))
        more = interrupted(step, loader.close)
        loader.close()

        # CPython before 3.13 takes a thread for ended once Thread.join was interrupted, so the
        # second close may return while the thread ends.
        end = time.monotonic() + _LIMIT
        while not set(threading.enumerate()) <= before and time.monotonic() < end:
            time.sleep(0.001)
        assert set(threading.enumerate()) <= before
        step += 3


_LEFT_OPEN = """
import os, sys
import fastdata as fd

loader = fd.Loader(sys.argv[1], 4, crop=fd.RandomResizedCrop(64), threads=2)
batches = iter(loader)
next(batches)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_loader_that_is_left_open(shards: Path) -> None:
    """A program, and a child of it, may end in the midst of a pass: nothing is printed."""
    done = _program(_LEFT_OPEN, shards)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


_WORKERS_LEFT = """
import sys
import fastdata as fd
import transforms

if __name__ == "__main__":
    options = {"crop": fd.RandomResizedCrop(16), "transform": transforms.invert, "workers": 1}
    sys.modules["kept until modules are gone"] = fd.Loader(sys.argv[1], 4, **options)
"""


def test_worker_processes_that_are_left(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is with worker processes, whose memory is freed when modules are gone already."""
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))
    done = _program(_WORKERS_LEFT, shards)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


_DAEMON = """
import sys, threading
import fastdata as fd

def consume():
    with fd.Loader(sys.argv[1], 4, crop=fd.RandomResizedCrop(64), threads=2) as loader:
        while True:
            for batch in loader:
                kept.append(batch)  # a tensor that is freed just then ends any program of torch's
                begun.set()

kept, begun = [], threading.Event()
threading.Thread(target=consume, daemon=True).start()
begun.wait()
"""


def test_a_daemon_thread_ends_silently(shards: Path) -> None:
    """A program may end while a daemon thread takes a batch: code 0, and nothing is printed."""
    done = _program(_DAEMON, shards)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


_SUBINTERPRETER = """
try:  # names of a module that is Python's own
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
try:
    import fastdata._core
except ImportError as error:
    text = str(error)
    while error is not None:
        text, error = text + str(error), error.__cause__ or error.__context__
    assert "interpreter" in text, text
else:
    raise AssertionError
'''
other = interpreters.create()
assert getattr(interpreters, "run_string")(other, code) is None
interpreters.destroy(other)
import fastdata._core
print("end")
"""


@pytest.mark.usefixtures("native_core")
def test_a_subinterpreter_is_refused() -> None:
    """The core is an ImportError there, as where it was not built, and works beside it."""
    done = _program(_SUBINTERPRETER)

    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
