"""Core counts respect affinity, cgroup quotas, other ranks, and what is really free."""

import math
import os
import threading
from pathlib import Path

import pytest

from fastdata.system import resources


def test_affinity() -> None:
    """A process that is pinned to one core has one core."""
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert resources.cpu_count() == 1
        assert resources.decode_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("files", "own", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, "0::/\n", 1.5),
        ({"cpu.max": "max 100000\n"}, "0::/\n", math.inf),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "", math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "", 4),
        ({"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, "0::/a/b\n", 3),
        ({"a/cpu.max": "300000 100000\n", "b/cpu.max": "1 1\n"}, "0::/a\n", 3),
        (
            {"cpu/x/cpu.cfs_quota_us": "50000\n", "cpu/x/cpu.cfs_period_us": "100000\n"},
            "4:memory:/y\n3:cpuacct,cpu:/x\n",
            0.5,
        ),
        ({"cpu.max": "200000 100000\n"}, "0::/named/outside/the/container\n", 2),
        ({}, "0::/\n", math.inf),
    ],
)
def test_quota(tmp_path: Path, files: dict[str, str], own: str, quota: float) -> None:
    """The smallest quota of the own cgroup and those around it counts, in either version."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(own)

    assert resources.cpu_quota(tmp_path, tmp_path / "own") == quota


@pytest.mark.parametrize(
    ("files", "own", "count"),
    [
        ({"cpuset.cpus.effective": "0-3,8,10-11\n"}, "0::/\n", 7),
        ({"cpuset/cpuset.effective_cpus": "5\n"}, "3:cpuset:/\n", 1),
        ({"a/cpuset.cpus.effective": "0-1\n", "cpuset.cpus.effective": "0-7\n"}, "0::/a/b\n", 2),
        ({}, "0::/\n", os.cpu_count()),
    ],
)
def test_cpuset(tmp_path: Path, files: dict[str, str], own: str, count: int) -> None:
    """The nearest cgroup that says so tells how many cores it holds, else the machine does."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(own)

    assert resources._cpuset(tmp_path, tmp_path / "own") == count


@pytest.mark.parametrize(
    ("ranks", "affinity", "cpuset", "quota", "expected"),
    [
        ("1", 16, 16, math.inf, 16),
        ("8", 128, 128, math.inf, 16),  # torchrun: all ranks may run everywhere
        ("8", 16, 128, math.inf, 16),  # a launcher gave each its own cores
        ("8", 64, 128, math.inf, 16),  # ... or bound them to their socket
        ("8", 32, 32, math.inf, 4),  # a container of 32 cores on a larger machine
        ("4", 64, 64, 20.0, 5),
        ("8", 2, 2, math.inf, 1),
        ("none", 16, 16, math.inf, 16),
        ("0", 16, 16, math.inf, 16),
    ],
)
def test_ranks_share_the_cores(
    monkeypatch: pytest.MonkeyPatch,
    ranks: str,
    affinity: int,
    cpuset: int,
    quota: float,
    expected: int,
) -> None:
    """The ranks of a machine never count a core twice, and keep cores that are theirs alone."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    monkeypatch.setattr(resources, "cpu_affinity", lambda: affinity)
    monkeypatch.setattr(resources, "_cpuset", lambda: cpuset)
    monkeypatch.setattr(resources, "cpu_quota", lambda: quota)

    assert resources.rank_cpu_count() == expected


@pytest.mark.parametrize(
    ("share", "free", "threads"),
    [
        (1, None, 1),
        (2, 2.0, 2),
        (2, 0.4, 1),
        (4, 3.9, 3),
        (8, 8.0, 7),
        (16, 15.8, 14),
        (16, 12.2, 10),
        (16, 4.2, 7),
        (16, 16.4, 14),
    ],
)
def test_leaves_cores_to_the_trainer(
    monkeypatch: pytest.MonkeyPatch, share: int, free: float | None, threads: int
) -> None:
    """Of free cores, one is left to the training loop from three on; on large machines two."""

    def measured(most: int) -> float:
        assert free is not None, "one core needs no measurement"
        assert most == share
        return free

    monkeypatch.setattr(resources, "rank_cpu_count", lambda: share)
    monkeypatch.setattr(resources, "free_cores", measured)

    assert resources.decode_threads() == threads


def test_free_cores_are_at_most_those_there_are() -> None:
    """However many threads compute, they get no more than the cores of the affinity."""
    allowed = os.sched_getaffinity(0)
    resources.free_cores.cache_clear()
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert 0 < resources.free_cores(3) < 1.2
    finally:
        os.sched_setaffinity(0, allowed)
        resources.free_cores.cache_clear()


def test_free_cores_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process measures once, so that all its loaders agree and none takes the time again."""
    spins: list[int] = []
    spin = resources._spin

    def counted(barrier: threading.Barrier) -> resources._Spin:
        spins.append(1)
        return spin(barrier)

    monkeypatch.setattr(resources, "_spin", counted)
    resources.free_cores.cache_clear()
    first = resources.free_cores(1)

    assert resources.free_cores(1) == first
    assert 1 <= len(spins) <= 3


def test_threads_that_cannot_start_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no more threads, the count that it states stands."""

    def refused(_: threading.Barrier) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(resources, "_spin", refused)
    resources.free_cores.cache_clear()

    assert resources.free_cores(7) == 7
    resources.free_cores.cache_clear()
