"""What a stretch of training uses of the machine: cores, memory, the GPU.

NVML's plain utilisation says whether any kernel ran. Its GPM counters tell, between two samples,
how many multiprocessors had work and how many tensor cores computed: on Hopper and later, within
the driver, without a daemon. https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

import math
import multiprocessing
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from fastdata.system import resources
from fastdata.train.meter import UtilizationSampler, nvml_handle, peak_memory, reset_peak_memory

_PROC = Path("/proc")


class Usage:
    """Measures while it is entered; its figures are those of all stretches together.

    Attributes:
        peak_memory_bytes: Peak memory of tensors on the device (CUDA), or peak resident memory of
            the process (CPU).
    """

    def __init__(self, device: torch.device) -> None:
        """Prepare to measure training on a device."""
        self.peak_memory_bytes = 0
        self._device = device
        self._seconds = self._cpu_seconds = 0.0
        self._sampler = UtilizationSampler(device)
        self._counters = ActivityMeter(device)

    @property
    def cpu_share(self) -> float:
        """CPU time of this process and its live children over the duration and the cores."""
        return self._cpu_seconds / max(1e-9, self._seconds) / resources.cpu_count()

    @property
    def gpu_utilization(self) -> float | None:
        """Share of the time in which the GPU ran a kernel; None if unknown."""
        return self._sampler.mean()

    @property
    def activity(self) -> "Activity":
        """Shares of the GPU's multiprocessors and tensor cores that were busy."""
        return self._counters.activity

    def __enter__(self) -> Self:
        """Start measuring."""
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
        """Stop measuring."""
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
    """CPU time of this process and of the live children of Python's multiprocessing.

    The system adds a child's time to its parent's only once the child has ended.
    """
    ticks = 0
    for child in multiprocessing.active_children():
        with suppress(OSError):  # it has just ended
            # proc_pid_stat(5): utime, stime are 12 and 13 after the name, which may hold blanks
            fields = (_PROC / str(child.pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def _reset_resident_peak() -> None:
    """Reset the peak of this process's resident memory, where Linux allows it; proc(5)."""
    with suppress(OSError):
        (_PROC / "self/clear_refs").write_text("5")


def _resident_peak() -> int | None:
    """Peak of this process's resident memory since then; None where the system does not say."""
    try:
        lines = (_PROC / "self/status").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    return int(values["VmHWM"].split()[0]) << 10 if "VmHWM" in values else None


class Activity(NamedTuple):
    """Shares of time and units, from 0 to 1; None where unknown.

    Attributes:
        sm: Multiprocessors that had a warp to run.
        tensor: Tensor cores that computed.
    """

    sm: float | None
    tensor: float | None


class ActivityMeter:
    """Samples the counters on entry and on exit, and keeps the activity between them.

    There is none on the CPU, on older GPUs, and without NVML or permission to read the counters.
    """

    def __init__(self, device: torch.device) -> None:
        """Find the device in NVML."""
        self._nvml, self._handle = nvml_handle(device)
        self._samples: list[Any] = []
        self._began = 0.0
        self._found: list[tuple[float, Activity]] = []  # with the seconds of each stretch

    @property
    def activity(self) -> Activity:
        """Mean over all stretches in which it was known."""
        return Activity(*(_mean(self._found, field) for field in range(2)))

    def __enter__(self) -> Self:
        """Take the first sample."""
        self._began = time.perf_counter()
        self._sample()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the second sample, and keep the activity in between."""
        self._sample()
        nvml = self._nvml
        if len(self._samples) == 2:
            metrics = (nvml.NVML_GPM_METRIC_SM_UTIL, nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL)
            with suppress(nvml.NVMLError):  # leaves this stretch without a figure
                found = Activity(*_between(nvml, self._samples, metrics))
                self._found.append((time.perf_counter() - self._began, found))
        for sample in self._samples:
            nvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _sample(self) -> None:
        """Take a sample, if the device has the counters."""
        nvml = self._nvml
        if nvml is None:
            return
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                return
            sample = nvml.nvmlGpmSampleAlloc()
        except nvml.NVMLError:  # an older driver or GPU, or no permission
            return
        try:
            nvml.nvmlGpmSampleGet(self._handle, sample)
        except nvml.NVMLError:
            nvml.nvmlGpmSampleFree(sample)
            return
        self._samples.append(sample)


def _mean(found: list[tuple[float, Activity]], field: int) -> float | None:
    """Mean of one field, weighted by seconds; None if it is never known."""
    known = [(seconds, share) for seconds, a in found if (share := a[field]) is not None]
    seconds = sum(seconds for seconds, _ in known)
    return sum(seconds * share for seconds, share in known) / seconds if seconds else None


def _between(nvml: Any, samples: list[Any], metrics: tuple[int, ...]) -> list[float | None]:
    """The metrics, which NVML has in percent, between two samples."""
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    request.sample1, request.sample2 = samples
    for number, metric in enumerate(metrics):
        request.metrics[number].metricId = metric
    nvml.nvmlGpmMetricsGet(request)
    found = (request.metrics[number] for number in range(len(metrics)))
    return [
        m.value / 100 if m.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(m.value) else None
        for m in found
    ]
