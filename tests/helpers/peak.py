"""Memory that code took at its peak."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


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
    ctypes.CDLL(None).malloc_trim(0)  # what others freed must not serve unseen
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here; proc(5)
    except OSError:
        pytest.skip("the kernel does not let a process forget its peak")
    before, found = _status("VmRSS"), Peak()
    yield found
    found.taken = max(0, _status("VmHWM") - before)
