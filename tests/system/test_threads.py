"""Threads: results in order, an end, and a system that lets a process start few or none."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interrupting import interrupted

import fastdata as fd
from fastdata.errors import OptionError, ThreadError
from fastdata.system import resources
from fastdata.system.threads import MOST, Task, Threads, ended

_LIMIT = 120.0  # seconds; it only ends what hangs


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A system that lets Python start so many more threads; at first 2."""
    left = [2]
    begin: Callable[[threading.Thread], None] = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    yield left
    left[0] = sys.maxsize


def test_results_and_errors_come_back() -> None:
    """Results come in the order of submission, whatever thread they are made on; so do errors."""
    with Threads(3, "test") as threads:
        assert list(threads.map(lambda x: x * x, range(100))) == [x * x for x in range(100)]
        failed = threads.submit(lambda: 1 // 0)
        assert isinstance(failed.exception(), ZeroDivisionError)

    with pytest.raises(RuntimeError, match="ended"):
        threads.submit(int)


def test_what_waits_can_be_cancelled() -> None:
    """An end that cancels finishes what runs, and nothing that waits is begun."""
    threads = Threads(1, "test")
    running, go = threading.Event(), threading.Event()

    def wait() -> bool:
        running.set()
        return go.wait(_LIMIT)

    first = threads.submit(wait)
    later = [threads.submit(int) for _ in range(5)]
    running.wait(_LIMIT)
    later[0].cancel()
    threads.shutdown(wait=False, cancel_futures=True)
    go.set()
    threads.shutdown()

    assert first.result()
    assert all(future.cancelled() for future in later)


def test_threads_end_with_their_last_reference() -> None:
    """Threads that nobody holds any more do all that was submitted, and end."""
    threads = Threads(2, "fastdata-unheld")
    futures = [threads.submit(int) for _ in range(10)]
    mine = [thread for thread in threading.enumerate() if "unheld" in thread.name]
    assert len(mine) == 2
    del threads

    assert [future.result(_LIMIT) for future in futures] == [0] * 10
    for thread in mine:
        thread.join(_LIMIT)
        assert not thread.is_alive()


def _interrupted_calls(tasks: list[Task[bool]]) -> dict[str, Callable[[], object]]:
    return {
        "wait": lambda: ended(tasks, _LIMIT),
        "cancel": lambda: [task.cancel() for task in tasks],
        "result": lambda: [task.result(_LIMIT) for task in tasks],
        "exception": lambda: [task.exception() for task in tasks],
    }


@pytest.mark.parametrize("name", ["wait", "cancel", "result", "exception"])
def test_ctrl_c_leaves_nothing_locked(name: str) -> None:
    """Wherever Ctrl-C comes in waiting or cancelling, tasks end, for whoever waits again."""
    step, more = 1, True
    while more:
        threads, go = Threads(2, "test"), threading.Event()
        tasks = [threads.submit(go.wait, _LIMIT) for _ in range(4)]
        if name != "cancel":
            go.set()
        more = interrupted(step, _interrupted_calls(tasks)[name])
        go.set()

        assert all(task.cancelled() or task.result(_LIMIT) for task in tasks)
        threads.shutdown(cancel_futures=True)
        step += 1
    assert step > 10


def test_a_thread_that_nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C that comes as a thread was just started does not keep the others from their end."""
    begin: Callable[[threading.Thread], None] = threading.Thread.start
    threads = Threads(3, "test")

    def start(thread: threading.Thread) -> None:
        begin(thread)
        if thread.name == "test-2":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        threads.submit(int)

    threads.shutdown()


def test_fewer_threads_do_all_the_work(allowed: list[int]) -> None:
    """Two threads of eight do the work of eight, with one warning that says so."""
    threads = Threads(8, "test")
    with pytest.warns(RuntimeWarning, match="only 2 of 8 threads") as warned:
        found = list(threads.map(str, range(50)))
    threads.shutdown()

    assert found == [str(number) for number in range(50)]
    assert len(warned) == 1
    assert not allowed[0]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_packing_with_few_threads(
    folder: Path, shards: Path, tmp_path: Path, allowed: list[int], left: int
) -> None:
    """Reading and writing take a thread each at least; with fewer, a clear error says so."""
    allowed[0] = left

    if left < 2:
        with pytest.raises(ThreadError, match="can't start new thread; raise the limit"):
            fd.pack(folder, tmp_path / "set", workers=1, shard_size=15_000)
        assert not (tmp_path / "set").exists()
    else:
        fd.pack(folder, tmp_path / "set", workers=1, shard_size=15_000)
        name = "shard-000000.tar"
        assert (tmp_path / "set" / name).read_bytes() == (shards / name).read_bytes()


def test_few_threads_are_no_reason_to_decode_on_fewer(allowed: list[int]) -> None:
    """Where threads for counting free cores cannot be started, all cores count, at once."""
    allowed[0] = 3
    free = resources.free_cores.__wrapped__

    assert free(4) == 4


_PROGRAM = """
import json, resource, sys, warnings
import cv2, fastdata as fd
from fastdata.errors import ThreadError
warnings.simplefilter("always")
crop = fd.RandomResizedCrop(16)

def tell(threads):
    with warnings.catch_warnings(record=True) as warned:
        try:
            with fd.Loader(sys.argv[1], 4, crop=crop, threads=threads, drop_last=False) as loader:
                found = [sorted(int(i) for batch in loader for i in batch.ids)]
        except ThreadError as error:
            found = [type(error).__name__]
    print(json.dumps([*found, [str(w.message) for w in warned if w.category is RuntimeWarning]]))

list(fd.Loader(sys.argv[1], 4, crop=crop, threads=1))  # whatever is still to be imported
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), resource.RLIM_INFINITY))
tell(16)
"""
_STACK = 1 << 30  # of each thread: so few of them fit into the address space


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("room", [0.5, 3.5])
def test_native_threads_that_cannot_start(shards: Path, room: float) -> None:
    """Fewer native threads read every sample, with one warning; none is a clear error."""
    big = (
        "import os, resource, sys; hard = resource.getrlimit(resource.RLIMIT_STACK)[1]; "
        f"resource.setrlimit(resource.RLIMIT_STACK, ({_STACK}, hard)); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    arguments = ["-c", _PROGRAM, str(shards), str(int(room * _STACK))]
    done = subprocess.run(
        [sys.executable, "-c", big, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )

    assert (done.returncode, done.stderr) == (0, "")
    found, warned = json.loads(done.stdout)
    if room < 1:
        assert found == "ThreadError"
    else:
        assert found == list(range(23))
        assert len(warned) == 1
        assert "of 16 threads could be started" in warned[0]


@pytest.mark.parametrize(
    "options", [{"threads": 10**6}, {"prefetch": 10**6}, {"workers": 10**6}, {"threads": 2**70}]
)
def test_absurd_numbers_are_refused(shards: Path, options: dict[str, Any]) -> None:
    """More threads, processes or batches than any machine has are a mistake, named at once."""
    (name,) = options
    with pytest.raises(OptionError, match=f"{name} must be .*{MOST}.*, found"):
        fd.Loader(shards, 4, transform=_same, **options)


def _same(image: Any, _: int) -> Any:
    return image
