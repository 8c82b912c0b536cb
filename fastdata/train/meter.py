"""Figures of an epoch: sums on the device, a clock that waits for it, NVML, and the machine."""

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
    """The epoch so far, on all ranks together.

    Attributes:
        loss: Mean loss; NaN or infinite if any step's was.
        accuracy: Share classified correctly, from 0 to 1.
        images: Number of images.
    """

    loss: float
    accuracy: float
    images: int


class PassMeter:
    """Loss and accuracy of an epoch, summed on the device so that no step waits for them."""

    def __init__(self, device: torch.device) -> None:
        """Start at zero."""
        # loss, correctly classified, images; float64 counts exactly up to 2**53
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, result: StepResult, images: int) -> None:
        """Add one step on ``images`` images; does not wait for the device."""
        self._sums[0] += result.loss * images
        self._sums[1] += result.correct
        self._sums[2] += images

    def read(self) -> Totals:
        """The epoch so far; waits for the device and the other ranks."""
        loss, correct, images = ranks.all_sum(self._sums.clone()).tolist()
        return Totals(loss / images, correct / images, int(images))

    def sums(self) -> torch.Tensor:
        """This rank's sums: (3,) float64."""
        return self._sums

    def restore(self, sums: torch.Tensor) -> None:
        """Restore what :meth:`sums` returned."""
        self._sums.copy_(sums)


class Clock(Protocol):
    """Seconds that have passed, and those that the calling thread computed: ``time`` is one."""

    def perf_counter(self) -> float:
        """Seconds since some moment."""

    def thread_time(self) -> float:
        """CPU seconds of the calling thread."""


def now(device: torch.device, clock: Clock = time) -> float:
    """Seconds on a monotonic clock, after the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock.perf_counter()


class UtilizationSampler:
    """Samples a GPU's utilisation through NVML in a thread while it is entered.

    On the CPU, or without the package ``nvidia-ml-py``, it does nothing.
    """

    def __init__(self, device: torch.device) -> None:
        """Find the device in NVML, by UUID: CUDA_VISIBLE_DEVICES renumbers, NVML does not."""
        self._samples: list[float] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml, self._handle = nvml_handle(device)

    def __enter__(self) -> Self:
        """Start sampling."""
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
            except self._nvml.NVMLError:  # some virtual GPUs do not report it
                return


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak on CUDA; the CPU's is that of the whole process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Peak bytes of tensors on the device (CUDA), or of resident memory of this process (CPU)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine(device: torch.device) -> dict[str, str | int]:
    """What figures depend on: processor, cores, GPU, versions. Reports are public: no host name."""
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


def nvml_handle(device: torch.device) -> tuple[Any, Any]:
    """The module ``pynvml`` and the device's handle in it; (None, None) where there is no NVML."""
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
