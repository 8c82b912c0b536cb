"""What a stretch of training takes of the machine: cores, memory, the GPU."""

import multiprocessing
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from fastdata.bench.gpm import Activity, ActivityMeter
from fastdata.system import resources
from fastdata.train.meter import UtilizationSampler, peak_memory, reset_peak_memory

_PROC = Path("/proc")


class Usage:
    """Measures whenever it is entered; its figures are those of all stretches together.

    Attributes:
        gpu_utilization: Share of the time in which the GPU ran a kernel; None if unknown.
        activity: Of the GPU's multiprocessors.
        peak_memory_bytes: Most device memory that tensors held (CUDA), or most memory that the
            process had resident (CPU).
    """

    def __init__(self, device: torch.device) -> None:
        """Prepare to measure on a device."""
        self.peak_memory_bytes = 0
        self._device = device
        self._seconds = self._cpu_seconds = 0.0
        self._sampler = UtilizationSampler(device)
        self._counters = ActivityMeter(device)

    @property
    def cpu_share(self) -> float:
        """CPU time of this process and its living children over the duration and the cores."""
        return self._cpu_seconds / max(1e-9, self._seconds) / resources.cpu_count()

    @property
    def gpu_utilization(self) -> float | None:
        """See above."""
        return self._sampler.mean()

    @property
    def activity(self) -> Activity:
        """See above."""
        return self._counters.activity

    def __enter__(self) -> Self:
        """Begin."""
        reset_peak_memory(self._device)
        _reset_resident_peak()
        self._sampler.__enter__()
        self._counters.__enter__()
        self._began, self._cpu = time.perf_counter(), _cpu_seconds()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        spent, seconds = _cpu_seconds() - self._cpu, time.perf_counter() - self._began
        self._counters.__exit__(kind, error, trace)
        self._sampler.__exit__(kind, error, trace)
        self._seconds += seconds
        self._cpu_seconds += max(0.0, spent)
        on_gpu = self._device.type == "cuda"
        resident = None if on_gpu else _resident_peak()
        peak = peak_memory(self._device) if resident is None else resident
        self.peak_memory_bytes = max(self.peak_memory_bytes, peak)


def _cpu_seconds() -> float:
    """CPU time of this process and of its children that live, as Python's multiprocessing has them.

    The system adds up a child's time only once it has ended.
    """
    ticks = 0
    for child in multiprocessing.active_children():
        with suppress(OSError):  # it ended just now
            # proc_pid_stat(5): after the name, which may hold blanks, utime and stime are 12 and 13
            fields = (_PROC / str(child.pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def _reset_resident_peak() -> None:
    """Forget the most memory that this process had resident, where Linux lets it; proc(5)."""
    with suppress(OSError):
        (_PROC / "self/clear_refs").write_text("5")


def _resident_peak() -> int | None:
    """Most bytes that this process had resident since then; None where the system does not tell."""
    try:
        lines = (_PROC / "self/status").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    return int(values["VmHWM"].split()[0]) << 10 if "VmHWM" in values else None
