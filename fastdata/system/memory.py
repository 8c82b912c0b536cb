"""Memory: how much there is, and a budget that threads share for images that need much of it."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fastdata.system import cpu_count

SMALL = 32 << 20
"""Bytes below which nothing is counted: usual images never wait, nor touch a lock."""

_SHARE = 4  # of the memory that is available, one part
_UNKNOWN = 4 << 30  # bytes assumed where the system does not say what is available
_LOOK = 0.1  # seconds between two looks whether a wait is still wanted
_LIMITS = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


class StoppedError(Exception):
    """A wait for memory ended because its result is not wanted any more."""


def available(
    meminfo: Path = Path("/proc/meminfo"),
    root: Path = cpu_count.CGROUP,
    own: Path = cpu_count.OWN,
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
    for folder in cpu_count.cgroups(root, own, "memory"):
        for limit, usage in _LIMITS:
            try:
                most, used = (int((folder / name).read_text()) for name in (limit, usage))
                counts = _numbers(folder / "memory.stat")
            except (OSError, ValueError):  # not there, or "max"
                continue
            cached = counts.get("active_file", 0) + counts.get("inactive_file", 0)
            found = min(found, max(0, most - used + cached))
    return found


def share() -> int:
    """Bytes that images may take at the same time: a quarter of what is available to a rank."""
    found = available()
    return (_UNKNOWN if found is None else found) // _SHARE // cpu_count.local_world_size()


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
            total: Bytes; None asks :func:`share` when they are first needed.
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
                self._total = share()
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
