"""Memory that code took at its peak."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MMAP_THRESHOLD = -3  # mallopt(3)


class Peak:
    """What a stretch of code took, once it is over; bytes."""

    taken = 0


def _status(name: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) << 10


@contextmanager
def peak() -> Iterator[Peak]:
    """Measure the most memory that this process holds within the context beyond what it had."""
    gc.collect()
    libc = ctypes.CDLL(None)
    # Large blocks go back to the system when they are freed. Else glibc keeps some for each thread
    # that had one, and the peak depends on which threads came to work.
    libc.mallopt(_MMAP_THRESHOLD, 4 << 20)
    libc.malloc_trim(0)  # what others freed must not serve unseen
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here; proc(5)
    except OSError:
        pytest.skip("the kernel does not let a process forget its peak")
    before, found = _status("VmRSS"), Peak()
    yield found
    found.taken = max(0, _status("VmHWM") - before)


def least_peak(act: Callable[[], object]) -> int:
    """Memory that ``act`` takes at its peak: the least of three, as all else can only add to one.

    What adds is other threads, and pages of libraries that the system took back and reads again.
    """
    peaks = []
    for _ in range(3):
        with peak() as memory:
            act()
        peaks.append(memory.taken)
    return min(peaks)
