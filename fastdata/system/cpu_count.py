"""How many cores this process may use, how many it really gets, and how many of them decode."""

import functools
import math
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

from fastdata.system.threads import Threads

CGROUP = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_SPIN = 0.02  # seconds; several time slices of the scheduler
_TRIES = 3
_LATEST = 5.0  # seconds until all threads must have begun
_BUFFER = 1 << 21  # bytes that one call goes over, some 0.5 ms: threads rarely meet at the GIL


def available() -> int:
    """Cores that this process may use: the smaller of its CPU affinity and its cgroup's quota."""
    return max(1, math.ceil(min(affinity(), quota())))


def affinity() -> int:
    """Cores that the scheduler may run this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no affinity


def quota(root: Path = CGROUP, own: Path = OWN) -> float:
    """CPU time that the process's cgroup, and each around it, grants, in cores; infinite if none.

    Args:
        root: Where cgroups are mounted, version 2 or 1.
        own: Which are the process's, as cgroups(7) has /proc/PID/cgroup.
    """
    quotas = (_quota(folder) for folder in cgroups(root, own, "cpu"))
    return min(quotas, default=math.inf)


def share() -> int:
    """Cores of this process, where torchrun started several on the machine that share them.

    A rank gets at most an even part of the quota and of the cores that the cgroup holds, or the
    machine, whatever its affinity: ranks that were bound to a socket each, but several to one,
    share that. Ranks that have cores of their own keep these.
    """
    ranks = local_world_size()
    if ranks == 1:
        return available()
    return max(1, math.ceil(min(affinity(), _cpuset() / ranks, quota() / ranks)))


@functools.cache
def free(most: int) -> float:
    """Cores that ``most`` threads get when they compute at the same time, up to ``most``.

    Fewer than that are free where other programs run, or under a limit that is not to be seen from
    within. Takes about 20 ms, or some 100 where cores seem to be taken: the best of three counts,
    since what lasts only a moment must not cost a whole training run. Measured once a process.
    """
    best = 0.0
    try:
        with Threads(most, "fastdata-cores") as pool:
            if pool.start() < most:  # then nothing is known
                return float(most)
            for _ in range(_TRIES):
                spins = list(pool.map(_spin, [Barrier(most, timeout=_LATEST)] * most))
                seconds = max(spin.end for spin in spins) - min(spin.start for spin in spins)
                best = max(best, sum(spin.used for spin in spins) / seconds)
                if best > most - 0.5:
                    break
    except RuntimeError:  # not even one could be started, or all of them did not meet
        return float(most)
    return best


def decode_threads() -> int:
    """Decoding threads where the user names none: all free cores but the one or two of the trainer.

    The training loop needs a core to launch kernels, and on larger machines one more for what the
    system does beside it. With one or two cores there is nothing to spare. What is decoded does
    not depend on the number.

    At least half of the cores count, however busy they are when a loader is made: threads too many
    cost little, threads too few would hold up the whole run, and ranks that start together are busy
    together.
    """
    cores = share()
    if cores > 1:
        cores = max(math.ceil(cores / 2), min(cores, round(free(cores))))
    if cores <= 2:
        return cores
    return cores - 1 if cores <= 8 else cores - 2


class _Spin(NamedTuple):
    """When a thread computed, and the CPU time that it got; seconds."""

    start: float
    end: float
    used: float


def _spin(all_begun: Barrier) -> _Spin:
    """Compute for a moment; by the kernel's clocks, so that no speed is assumed."""
    data = bytes(_BUFFER)
    all_begun.wait()
    start, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - start < _SPIN:
        zlib.crc32(data)  # without the GIL
    return _Spin(start, time.perf_counter(), time.thread_time() - used)


def local_world_size() -> int:
    """Processes that torchrun started on this machine; 1 where it did not."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isdecimal() else 1


def _cpuset(root: Path = CGROUP, own: Path = OWN) -> int:
    """Cores that the process's cgroup holds, or the machine where it holds none."""
    for folder in cgroups(root, own, "cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text:
                return sum(_count(part) for part in text.split(","))
    return os.cpu_count() or 1


def _count(part: str) -> int:
    """Numbers in a range such as ``"4-7"``, or 1 for a single one."""
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1


def cgroups(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """Folders of the process's cgroup and of those around it, for one controller, from within.

    A container often sees its own cgroup as the root of all, whatever name /proc has for it.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/", f"0:{controller}:/"]:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        base = root / controller if names else root
        inner = Path(path.lstrip("/"))
        yield from (base / part for part in (inner, *inner.parents))


def _quota(folder: Path) -> float:
    """CPU quota that one cgroup states in cores; infinite where there is none (v2, then v1)."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:  # "max", or v1's -1
        return math.inf
    return int(quota) / int(period)
