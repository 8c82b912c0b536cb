"""How many cores this process may use, and how many of them decode."""

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available() -> int:
    """Cores that this process may use: the smaller of its CPU affinity and its cgroup's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS has no affinity
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota(_CGROUP))))


def decode_threads() -> int:
    """Decoding threads where the user names none: all cores but the one or two of the trainer.

    The training loop needs a core to launch kernels, and on larger machines one more for what the
    system does beside it. With one or two cores there is nothing to spare.
    """
    cores = available()
    if cores <= 2:
        return cores
    return cores - 1 if cores <= 8 else cores - 2


def _quota(root: Path) -> float:
    """CPU quota of the cgroup in cores; infinite where there is none (cgroup v2, then v1)."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:  # "max", or v1's -1
        return math.inf
    return int(quota) / int(period)
