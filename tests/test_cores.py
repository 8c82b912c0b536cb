"""Core counts respect affinity and cgroup quotas."""

import math
import os
from pathlib import Path

import pytest

from fastdata import cores


def test_affinity() -> None:
    """A process that is pinned to one core has one core."""
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores.available() == 1
        assert cores.decode_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({}, math.inf),
    ],
)
def test_quota(tmp_path: Path, files: dict[str, str], quota: float) -> None:
    """The quota is read from either version of cgroups; none or no limit is infinite."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert cores._quota(tmp_path) == quota


@pytest.mark.parametrize(("available", "threads"), [(1, 1), (2, 2), (4, 3), (8, 7), (16, 14)])
def test_leaves_cores_to_the_trainer(
    monkeypatch: pytest.MonkeyPatch, available: int, threads: int
) -> None:
    """From three cores on, one is left to the training loop; on large machines two."""
    monkeypatch.setattr(cores, "available", lambda: available)

    assert cores.decode_threads() == threads
