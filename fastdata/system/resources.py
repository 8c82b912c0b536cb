"""Cores and memory that this process may use, and a budget of memory that its threads share."""

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
from typing import NamedTuple

from fastdata.system.threads import Threads

CGROUP = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")

_SPIN = 0.02  # seconds; several time slices of the scheduler
_TRIES = 3
_START_TIMEOUT = 5.0  # seconds until all threads must have started
_BUFFER = 1 << 21  # bytes of one call without the GIL, some 0.5 ms: threads rarely meet at the GIL


def cpu_count() -> int:
    """Cores that this process may use: the smaller of its CPU affinity and its cgroup's quota."""
    return max(1, math.ceil(min(cpu_affinity(), cpu_quota())))


def cpu_affinity() -> int:
    """Cores that the scheduler may run this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no affinity


def cpu_quota(root: Path = CGROUP, own: Path = OWN) -> float:
    """CPU time that the process's cgroup and those around it grant, in cores; infinite if none.

    Args:
        root: Where cgroups are mounted, version 2 or 1.
        own: The list of the process's cgroups, in the form of /proc/PID/cgroup (cgroups(7)).
    """
    return min((_quota(folder) for folder in cgroups(root, own, "cpu")), default=math.inf)


def local_world_size() -> int:
    """Processes that torchrun started on this machine; 1 without torchrun."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isdecimal() else 1


def rank_cpu_count() -> int:
    """Cores for this process where torchrun started several that share the machine.

    A rank gets at most an even share of the quota and of the cores of the cgroup, or else of the
    machine. Its affinity alone would not do: several ranks may be bound to the same socket. Ranks
    with cores of their own keep those.
    """
    ranks = local_world_size()
    if ranks == 1:
        return cpu_count()
    return max(1, math.ceil(min(cpu_affinity(), _cpuset() / ranks, cpu_quota() / ranks)))


def decode_threads() -> int:
    """Default number of decoding threads: all free cores but one or two for the training loop.

    The training loop needs a core to launch kernels, and on larger machines the system needs
    another. With one or two cores there is none to spare. The number does not change the pixels.

    However busy the machine is now, at least half of the cores count: ranks that start together
    find each other busy, and too few threads slow down the whole run, while too many cost little.
    """
    cores = rank_cpu_count()
    if cores > 1:
        cores = max(math.ceil(cores / 2), min(cores, round(free_cores(cores))))
    if cores <= 2:
        return cores
    return cores - 1 if cores <= 8 else cores - 2


@functools.cache
def free_cores(most: int) -> float:
    """Measure how many cores ``most`` threads get when all of them compute; once per process.

    They get fewer than ``most`` where other programs run, or under a limit that cannot be seen
    from within a container. Takes about 20 ms, or 100 ms where cores seem to be taken: then the
    best of three measurements counts, as a short disturbance must not slow down a whole run.
    """
    best = 0.0
    try:
        with Threads(most, "fastdata-cores") as pool:
            if pool.start() < most:  # then the measurement would say nothing
                return float(most)
            for _ in range(_TRIES):
                barrier = threading.Barrier(most, timeout=_START_TIMEOUT)
                spins = list(pool.map(_spin, [barrier] * most))
                seconds = max(spin.end for spin in spins) - min(spin.start for spin in spins)
                best = max(best, sum(spin.used for spin in spins) / seconds)
                if best > most - 0.5:
                    break
    except RuntimeError:  # no thread could be started, or they did not all reach the barrier
        return float(most)
    return best


class _Spin(NamedTuple):
    """When a thread computed, and the CPU time that it got; in seconds."""

    start: float
    end: float
    used: float


def _spin(barrier: threading.Barrier) -> _Spin:
    """Compute for a moment, by the clock: no speed is assumed."""
    data = bytes(_BUFFER)
    barrier.wait()
    start, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - start < _SPIN:
        zlib.crc32(data)  # without the GIL
    return _Spin(start, time.perf_counter(), time.thread_time() - used)


def cgroups(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """Folders of the process's cgroup and of those around it, for one controller, innermost first.

    The root is always among them: a container often sees its own cgroup there, whatever path /proc
    gives for it.
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
    """CPU quota of one cgroup, version 2 or 1, in cores; infinite if it has none."""
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


def _cpuset(root: Path = CGROUP, own: Path = OWN) -> int:
    """Cores of the process's cgroup, or of the machine where the cgroup names none."""
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
    """Count the numbers in a range such as ``"4-7"``, or the single one."""
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1


SMALL = 32 << 20
"""Bytes below which a lease is free: ordinary images neither wait nor touch a lock."""

_UNKNOWN_MEMORY = 4 << 30  # bytes assumed where the system does not say what is available
_POLL = 0.1  # seconds between checks whether a wait is still wanted
_MEMORY_LIMITS = (  # of cgroups, version 2 and 1
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class StoppedError(Exception):
    """A wait for memory ended because its result is no longer wanted."""


def available_memory(
    meminfo: Path = Path("/proc/meminfo"), root: Path = CGROUP, own: Path = OWN
) -> int | None:
    """Bytes that this process could allocate without swapping; None if the system does not say.

    The page cache counts as available, within the limits of the process's cgroup and of those
    around it.

    Args:
        meminfo: In the form of /proc/meminfo (proc(5)).
        root: As for :func:`cpu_quota`.
        own: As for :func:`cpu_quota`.
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
    """Bytes that decoding may use at a time: a quarter of what is available to this rank."""
    found = available_memory()
    return (_UNKNOWN_MEMORY if found is None else found) // 4 // local_world_size()


def never() -> bool:
    """Let a wait run to its end: for what asks whether it is still wanted."""
    return False


class Budget:
    """Bytes that threads may use at a time.

    A thread that asks for more than is left waits, first come, first served, until others give
    theirs back. A request alone is always granted, however large. A thread holds one lease at a
    time, so that no two wait for each other.
    """

    def __init__(self, total: int | None = None) -> None:
        """Start with nothing in use.

        Args:
            total: Bytes; None asks :func:`memory_share` when they are first needed.
        """
        self._total = total
        self.reset()

    def reset(self) -> None:
        """Forget who holds a lease: a forked child lacks those threads."""
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._used = 0

    @contextmanager
    def lease(self, size: int, stopped: Callable[[], bool] = never) -> Iterator[None]:
        """Wait for memory, and hold it within the context.

        Args:
            size: Bytes; less than ``SMALL`` is not counted.
            stopped: Asked while waiting: whether the result is no longer wanted.

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
        turn = object()
        with self._changed:
            if self._total is None:
                self._total = memory_share()
            self._waiting.append(turn)
            try:
                while self._waiting[0] is not turn or (
                    self._used and self._used + size > self._total
                ):
                    if stopped():
                        raise StoppedError
                    self._changed.wait(_POLL)
                self._used += size
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()  # it is the next one's turn


BUDGET = Budget()
"""The budget that all threads of this process share."""

os.register_at_fork(after_in_child=BUDGET.reset)


def _numbers(path: Path) -> dict[str, int]:
    """Read lines of a name and a number."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
