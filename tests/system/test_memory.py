"""How much memory there is, and the budget that decoding threads share."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastdata.system import resources
from fastdata.system.resources import SMALL, Budget, StoppedError

_LIMIT = 60.0  # seconds, which only a hang meets


def test_what_is_available_is_what_machine_and_cgroups_leave(tmp_path: Path) -> None:
    """It is the machine's, or what a cgroup around the process grants beyond what is in use."""
    info, own = tmp_path / "meminfo", tmp_path / "own"
    info.write_text("MemTotal:  100 kB\nMemAvailable:     80 kB\n")
    own.write_text("0::/job\n")
    assert resources.available_memory(info, tmp_path, own) == 80 << 10

    inner = tmp_path / "job"
    inner.mkdir()
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("9000\n")
    (inner / "memory.stat").write_text("anon 6000\ninactive_file 2500\nactive_file 500\n")
    assert resources.available_memory(info, tmp_path, own) == 80 << 10

    (inner / "memory.max").write_text("10000\n")  # of which 6,000 are more than page cache
    assert resources.available_memory(info, tmp_path, own) == 4000
    assert resources.available_memory(tmp_path / "none", tmp_path, own) is None


def test_ranks_of_a_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the processes that torchrun starts takes its part alone."""
    monkeypatch.setattr(resources, "available_memory", lambda: 64 << 30)
    assert resources.memory_share() == 16 << 30

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert resources.memory_share() == 2 << 30


def _many(budget: Budget, sizes: list[int]) -> int:
    """The most bytes in use at a time, where each size is leased by a thread of its own."""
    guard, used, most = threading.Lock(), 0, 0

    def one(size: int) -> None:
        nonlocal used, most
        with budget.lease(size):
            with guard:
                used += size
                most = max(most, used)
            time.sleep(0.001)  # so that others could run into it
            with guard:
                used -= size

    with ThreadPoolExecutor(len(sizes)) as pool:
        for future in [pool.submit(one, size) for size in sizes]:
            future.result(_LIMIT)
    return most


def test_no_more_is_in_use_than_there_is() -> None:
    """Threads wait for each other; what is over the whole budget comes alone, and does come."""
    budget = Budget(3 * SMALL)

    assert _many(budget, [SMALL] * 12) <= 3 * SMALL
    assert _many(budget, [2 * SMALL] * 12) == 2 * SMALL
    assert _many(budget, [9 * SMALL, SMALL, SMALL, 9 * SMALL, SMALL]) == 9 * SMALL


def test_small_ones_are_not_counted() -> None:
    """Usual images never wait, whatever is in use."""
    budget = Budget(1)

    with budget.lease(SMALL), budget.lease(SMALL - 1), budget.lease(SMALL - 1):
        pass


def _waiting(budget: Budget, size: int, stopped: Callable[[], bool]) -> threading.Thread:
    def wait() -> None:
        try:
            with budget.lease(size, stopped):
                pass
        except StoppedError:
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_wait_ends_when_its_result_is_not_wanted() -> None:
    """Who waits for memory of a batch that was cancelled lets go, and the next one's turn comes."""
    budget = Budget(SMALL)
    stop = threading.Event()
    with budget.lease(SMALL):
        thread = _waiting(budget, SMALL, stop.is_set)
        stop.set()
        thread.join(_LIMIT)
        assert not thread.is_alive()
    with budget.lease(SMALL):
        pass


def test_a_forked_child_starts_with_nothing_in_use() -> None:
    """A child lacks the threads that hold memory in its parent, and does not wait for them."""
    with resources.BUDGET.lease(1 << 60):
        child = os.fork()
        if child == 0:
            with resources.BUDGET.lease(1 << 60):
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
