"""Figures of a pass: sums kept on the device, a clock that waits for it, NVML, and the machine."""

import platform
import resource
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import torch

from fastdata.native import decoder
from fastdata.system import resources
from fastdata.system.threads import start
from fastdata.train import ranks
from fastdata.train.step import StepResult

_SAMPLE_SECONDS = 0.1  # NVML itself averages over 1/6 s to 1 s, depending on the GPU


class Totals(NamedTuple):
    """A pass so far, on all ranks together.

    Attributes:
        loss: Mean loss; NaN or infinite if any step's was.
        accuracy: Share classified rightly, from 0 to 1.
        images: How many images there were.
    """

    loss: float
    accuracy: float
    images: int


class PassMeter:
    """Loss and accuracy of a pass, summed on the device so that no step waits for them."""

    def __init__(self, device: torch.device) -> None:
        """Start from nothing seen."""
        # loss, rightly classified, images; float64 counts exactly up to 2**53
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, result: StepResult, images: int) -> None:
        """Count one step over ``images`` images; does not wait for the device."""
        self._sums[0] += result.loss * images
        self._sums[1] += result.correct
        self._sums[2] += images

    def read(self) -> Totals:
        """The pass so far; waits for the device and, where there are several ranks, for them."""
        loss, correct, images = ranks.add_up(self._sums.clone()).tolist()
        return Totals(loss / images, correct / images, int(images))

    def sums(self) -> torch.Tensor:
        """(3,) float64: what this rank has added up."""
        return self._sums

    def go_on(self, sums: torch.Tensor) -> None:
        """Go on from :meth:`sums`."""
        self._sums.copy_(sums)


class Clock(Protocol):
    """Seconds that have passed, and those that the calling thread computed: ``time`` is one."""

    def perf_counter(self) -> float:
        """Seconds since some moment."""

    def thread_time(self) -> float:
        """CPU seconds of the calling thread."""


def now(device: torch.device, clock: Clock = time) -> float:
    """Seconds on a steady clock, once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock.perf_counter()


class UtilizationSampler:
    """Samples a GPU's utilisation through NVML in a thread whenever it is entered.

    On the CPU, or without the package ``nvidia-ml-py``, it does nothing.
    """

    def __init__(self, device: torch.device) -> None:
        """Find the device in NVML, by UUID: CUDA_VISIBLE_DEVICES renumbers, NVML does not."""
        self._samples: list[float] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml, self._handle = _nvml_handle(device)

    def __enter__(self) -> Self:
        """Sample from now on."""
        self._stop.clear()
        if self._handle is not None:
            self._thread = threading.Thread(target=self._run, name="fastdata-nvml", daemon=True)
            start(self._thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop sampling."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def mean(self) -> float | None:
        """Mean share of the time in which a kernel ran, from 0 to 1; None without samples."""
        return sum(self._samples) / len(self._samples) / 100 if self._samples else None

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            try:
                self._samples.append(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
            except self._nvml.NVMLError:  # some virtual GPUs do not tell: then there is no figure
                return


def reset_peak_memory(device: torch.device) -> None:
    """Forget the peak so far, where the device can; the CPU's is that of the whole process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Most bytes held by tensors on the device (CUDA), or ever resident in this process (CPU)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine(device: torch.device) -> dict[str, str | int]:
    """Public facts that a figure depends on: processor, cores, GPU, versions. No host name."""
    facts: dict[str, str | int] = {
        "cpu": _cpu_name(),
        "cores": resources.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "decoder": decoder(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts["gpu"] = properties.name
        facts["gpu_memory_gib"] = properties.total_memory >> 30
        facts["cuda"] = torch.version.cuda or "none"
        facts["cudnn"] = str(torch.backends.cudnn.version())
    return facts


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _nvml_handle(device: torch.device) -> tuple[Any, Any]:
    """NVML and the device's handle in it, or twice None."""
    if device.type != "cuda":
        return None, None
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return None, None
    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        return None, None
