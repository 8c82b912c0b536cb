"""How busy a GPU's multiprocessors are, from NVML's GPM counters.

NVML's plain utilisation says whether any kernel ran. GPM counts, between two samples, how many of
the multiprocessors had work and how many of their tensor cores computed: Hopper and later, within
the driver, without a daemon. https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

import math
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from fastdata.train.meter import _nvml_handle as nvml_handle


class Activity(NamedTuple):
    """Shares from 0 to 1 over the time and all multiprocessors; None where unknown.

    Attributes:
        sm: Multiprocessors that had a warp to run.
        tensor: Tensor cores that computed.
    """

    sm: float | None
    tensor: float | None


class ActivityMeter:
    """Measures whenever it is entered: a sample of the counters there, and one on leaving.

    On the CPU, on older GPUs, without NVML or without the right to read the counters, it finds
    nothing.
    """

    def __init__(self, device: torch.device) -> None:
        """Find the device in NVML, and whether it has the counters."""
        self._nvml, self._handle = nvml_handle(device)
        self._samples: list[Any] = []
        self._began = 0.0
        self._found: list[tuple[float, Activity]] = []  # seconds of each stretch

    @property
    def activity(self) -> Activity:
        """Mean over all stretches in which it was known."""
        return Activity(*(_mean(self._found, place) for place in range(2)))

    def __enter__(self) -> Self:
        """Begin."""
        self._began = time.perf_counter()
        self._sample()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and know the activity in between."""
        self._sample()
        nvml = self._nvml
        if len(self._samples) == 2:
            metrics = (nvml.NVML_GPM_METRIC_SM_UTIL, nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL)
            with suppress(nvml.NVMLError):  # then there is no figure
                found = Activity(*_between(nvml, self._samples, metrics))
                self._found.append((time.perf_counter() - self._began, found))
        for sample in self._samples:
            nvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _sample(self) -> None:
        """Take a sample, where the device has the counters."""
        nvml = self._nvml
        if nvml is None:
            return
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                return
            sample = nvml.nvmlGpmSampleAlloc()
        except nvml.NVMLError:  # an older driver or GPU, or no right to read them
            return
        try:
            nvml.nvmlGpmSampleGet(self._handle, sample)
        except nvml.NVMLError:
            nvml.nvmlGpmSampleFree(sample)
            return
        self._samples.append(sample)


def _mean(found: list[tuple[float, Activity]], place: int) -> float | None:
    """One share over all stretches, by their seconds; None where none has it."""
    known = [(seconds, share) for seconds, a in found if (share := a[place]) is not None]
    seconds = sum(seconds for seconds, _ in known)
    return sum(seconds * share for seconds, share in known) / seconds if seconds else None


def _between(nvml: Any, samples: list[Any], metrics: tuple[int, ...]) -> list[float | None]:
    """The metrics, which NVML has in percent, between two samples."""
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    request.sample1, request.sample2 = samples
    for place, metric in enumerate(metrics):
        request.metrics[place].metricId = metric
    nvml.nvmlGpmMetricsGet(request)
    found = (request.metrics[place] for place in range(len(metrics)))
    return [
        m.value / 100 if m.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(m.value) else None
        for m in found
    ]
