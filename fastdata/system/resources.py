"""What of the machine is this process's: cores, memory, and a budget of it that threads share."""

import functools
import math
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def cpu_count() -> int:
    """Cores that this process may use: the smaller of its CPU affinity and its cgroup's quota."""
    return max(1, math.ceil(min(cpu_affinity(), cpu_quota())))


def cpu_affinity() -> int:
    """Cores that the scheduler may run this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no affinity


def cpu_quota(root: Path = CGROUP, own: Path = OWN) -> float:
    """CPU time that the process's cgroup, and each around it, grants, in cores; infinite if none.

    Args:
        root: Where cgroups are mounted, version 2 or 1.
        own: Which are the process's, as cgroups(7) has /proc/PID/cgroup.
    """
    quotas = (_quota(folder) for folder in cgroups(root, own, "cpu"))
    return min(quotas, default=math.inf)


def rank_cpu_count() -> int:
    """Cores of this process, where torchrun started several on the machine that share them.

    A rank gets at most an even part of the quota and of the cores that the cgroup holds, or the
    machine, whatever its affinity: ranks that were bound to a socket each, but several to one,
    share that. Ranks that have cores of their own keep these.
    """
    ranks = local_world_size()
    if ranks == 1:
        return cpu_count()
    return max(1, math.ceil(min(cpu_affinity(), _cpuset() / ranks, cpu_quota() / ranks)))


@functools.cache
def free_cores(most: int) -> float:
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
    cores = rank_cpu_count()
    if cores > 1:
        cores = max(math.ceil(cores / 2), min(cores, round(free_cores(cores))))
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


SMALL = 32 << 20
"""Bytes below which nothing is counted: usual images never wait, nor touch a lock."""

_MEMORY_SHARE = 4  # of the memory that is available, one part
_UNKNOWN_MEMORY = 4 << 30  # bytes assumed where the system does not say what is available
_LOOK = 0.1  # seconds between two looks whether a wait is still wanted
_MEMORY_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class StoppedError(Exception):
    """A wait for memory ended because its result is not wanted any more."""


def available_memory(
    meminfo: Path = Path("/proc/meminfo"),
    root: Path = CGROUP,
    own: Path = OWN,
) -> int | None:
    """Bytes that this process could take without swapping; None where the system does not say.

    What files hold in the page cache counts as available, under the limits of the process's cgroup
    and of those around it.

    Args:
        meminfo: As proc(5) has it.
        root: Where cgroups are mounted, version 2 or 1.
        own: Which are the process's, as cgroups(7) has /proc/PID/cgroup.
    """
    try:
        found = _numbers(meminfo)["MemAvailable:"] << 10
    except (OSError, KeyError):
        return None
    for folder in cgroups(root, own, "memory"):
        for limit, usage in _MEMORY_LIMITS:
            try:
                most, used = (int((folder / name).read_text()) for name in (limit, usage))
                counts = _numbers(folder / "memory.stat")
            except (OSError, ValueError):  # not there, or "max"
                continue
            cached = counts.get("active_file", 0) + counts.get("inactive_file", 0)
            found = min(found, max(0, most - used + cached))
    return found


def memory_share() -> int:
    """Bytes that images may take at the same time: a quarter of what is available to a rank."""
    found = available_memory()
    return (_UNKNOWN_MEMORY if found is None else found) // _MEMORY_SHARE // local_world_size()


def never() -> bool:
    """For waits that nothing stops."""
    return False


class Budget:
    """Bytes that threads may have in use at a time.

    Who asks for more than is left waits, in the order of asking, until others gave theirs back;
    one alone always gets what it asks for, however much. A thread holds one part at a time.
    """

    def __init__(self, total: int | None = None) -> None:
        """Start with nothing in use.

        Args:
            total: Bytes; None asks :func:`memory_share` when they are first needed.
        """
        self._total = total
        self.reset()

    def reset(self) -> None:
        """Forget the threads that held parts, as a forked child must: it lacks them."""
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._used = 0

    @contextmanager
    def lease(self, size: int, stopped: Callable[[], bool] = never) -> Iterator[None]:
        """Wait for memory, and hold it within the context.

        Args:
            size: Bytes; below ``SMALL`` nothing is counted.
            stopped: Whether it is not wanted any more.

        Raises:
            StoppedError: It is not.
        """
        if size < SMALL:
            yield
            return
        self._take(size, stopped)
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()

    def _take(self, size: int, stopped: Callable[[], bool]) -> None:
        mine = object()
        with self._changed:
            if self._total is None:
                self._total = memory_share()
            self._waiting.append(mine)
            try:
                while self._waiting[0] is not mine or (
                    self._used and self._used + size > self._total
                ):
                    if stopped():
                        raise StoppedError
                    self._changed.wait(_LOOK)
                self._used += size
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()  # the next one's turn


BUDGET = Budget()
"""What the threads of this process share."""

os.register_at_fork(after_in_child=BUDGET.reset)


def _numbers(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
