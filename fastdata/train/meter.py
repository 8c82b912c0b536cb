"""Figures of a pass: sums kept on the device, a clock that waits for it, NVML, and the machine."""

import platform
import resource
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from fastdata import cores
from fastdata.train.step import StepResult

_SAMPLE_SECONDS = 0.1  # NVML itself averages over 1/6 s to 1 s, depending on the GPU


class PassMeter:
    """Loss and accuracy of a pass, summed on the device so that no step waits for them."""

    def __init__(self, device: torch.device) -> None:
        """Start from nothing seen."""
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self.images = 0

    def add(self, result: StepResult, images: int) -> None:
        """Count one step over ``images`` images; does not wait for the device."""
        self._loss += result.loss * images
        self._correct += result.correct
        self.images += images

    def loss(self) -> float:
        """Mean loss so far; waits for the device. NaN or infinite if any step's was."""
        return float(self._loss) / self.images

    def accuracy(self) -> float:
        """Share classified rightly so far, from 0 to 1; waits for the device."""
        return int(self._correct) / self.images


def now(device: torch.device) -> float:
    """Seconds on a steady clock, once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


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
            self._thread.start()
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
        "cores": cores.available(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
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
