"""What the benchmarks measure beside speed: time of steps, CPU, a GPU's counters."""

import ctypes
import math
import multiprocessing
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fastdata.bench.measure import StepClock
from fastdata.bench.usage import Activity, ActivityMeter, Usage
from fastdata.system import resources

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

CPU = torch.device("cpu")


def test_clock_has_a_time_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one duration between each two marks, in their order."""
    times = [1.0, 1.5, 3.5, 3.75]
    clock = StepClock(CPU)
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", iter(times).__next__)
        for _ in times:
            clock.mark()

    assert clock.durations() == [0.5, 2.0, 0.25]


def _burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cores_of_workers_count() -> None:
    """CPU time of a living child process counts as that of the process."""
    done, stop = multiprocessing.get_context("fork").Event(), multiprocessing.Event()

    def child() -> None:
        _burn(0.4)
        done.set()
        stop.wait(240)

    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    began = time.perf_counter()
    with Usage(CPU) as usage:
        process.start()
        assert done.wait(240)
    seconds = time.perf_counter() - began  # at least what the share is of
    stop.set()
    process.join(240)

    assert usage.cpu_share * seconds * resources.cpu_count() > 0.35


# A GPU's counters, on a driver that is played


class _NVMLError(Exception):
    pass


class _Nvml:
    """NVML of a GPU with GPM counters: 75 % of its multiprocessors busy, tensor cores unknown."""

    NVMLError = _NVMLError
    NVML_SUCCESS, NVML_GPM_METRICS_GET_VERSION = 0, 1
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_ANY_TENSOR_UTIL = 2, 5

    def __init__(self, *, supported: int = 1, fails: str = "") -> None:
        self.supported = supported
        self.fails = fails
        self.samples: list[object] = []

    def _maybe_fail(self, name: str) -> None:
        if self.fails == name:
            raise _NVMLError(name)

    def nvmlGpmQueryDeviceSupport(self, _handle: object) -> Any:  # noqa: N802
        self._maybe_fail("support")
        return SimpleNamespace(isSupportedDevice=self.supported)

    def nvmlGpmSampleAlloc(self) -> object:  # noqa: N802
        self.samples.append(sample := object())
        return sample

    def nvmlGpmSampleGet(self, _handle: object, _sample: object) -> None:  # noqa: N802
        self._maybe_fail("sample")

    def nvmlGpmSampleFree(self, sample: object) -> None:  # noqa: N802
        self.samples.remove(sample)

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        metrics = [SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(9)]
        return SimpleNamespace(metrics=metrics)

    def nvmlGpmMetricsGet(self, request: Any) -> None:  # noqa: N802
        self._maybe_fail("metrics")
        assert request.sample1 is not request.sample2
        values = {2: 75.0, 5: math.nan}
        for metric in request.metrics[: request.numMetrics]:
            metric.value = values[metric.metricId]


def _activity(nvml: _Nvml, monkeypatch: pytest.MonkeyPatch) -> Activity:
    monkeypatch.setattr("fastdata.bench.usage.nvml_handle", lambda _: (nvml, object()))
    meter = ActivityMeter(CPU)
    with meter:
        pass
    assert nvml.samples == []  # all were freed
    return meter.activity


def test_activity_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Percent become shares; what is not a number is unknown; samples are freed."""
    assert _activity(_Nvml(), monkeypatch) == (0.75, None)


@pytest.mark.parametrize("fails", ["support", "sample", "metrics"])
def test_driver_that_does_not_tell(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that refuses at any point, or lacks the counters, leaves the figures unknown."""
    assert _activity(_Nvml(fails=fails), monkeypatch) == (None, None)
    assert _activity(_Nvml(supported=0), monkeypatch) == (None, None)


def test_request_has_the_form_of_the_library() -> None:
    """The real binding has the fields that are written here, and room for them."""
    pynvml = pytest.importorskip("pynvml")
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = 2
    request.metrics[1].metricId = pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL

    assert ctypes.sizeof(request) > 2 * ctypes.sizeof(request.metrics[0])
    assert (request.metrics[1].value, request.metrics[1].nvmlReturn) == (0.0, 0)
    assert all(
        callable(getattr(pynvml, f"nvmlGpm{name}"))
        for name in ("QueryDeviceSupport", "SampleAlloc", "SampleGet", "SampleFree", "MetricsGet")
    )
