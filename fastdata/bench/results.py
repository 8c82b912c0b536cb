"""Figures of the benchmarks: plain frozen data, JSON through ``dataclasses.asdict``."""

from dataclasses import dataclass

from fastdata.bench.rungs import Rung
from fastdata.train.results import Ceiling


@dataclass(frozen=True)
class Figures:
    """Speed and load of one rung.

    Attributes:
        steps: Timed steps.
        step_seconds: Quartiles of the time between the ends of two steps, on the device's clock:
            a quarter of the steps took at most the first, half of them the second. Waits in bursts
            do not show in the median, but do in images a second.
        images_per_second: On real data, over all timed steps.
        resident_images_per_second: The same step on one batch that stays on the device.
        share: The former over the latter.
        gpu_utilization: Share of the time in which the GPU ran any kernel, from NVML's samples;
            None without NVML. It can be near 1 even at a low load.
        sm_activity: Share of the GPU's multiprocessors that were busy, over the time, from NVML's
            GPM counters (Hopper and later); None where the driver does not give it.
        tensor_activity: Share of its tensor cores that computed, from the same counters.
        cpu_share: CPU time of this process and its workers over the duration and the cores.
        peak_memory_bytes: Peak memory of tensors on the device (CUDA), or peak resident memory of
            the process without its workers (CPU).
        warmup_seconds: Time before the first timed step, compilation included.
    """

    steps: int
    step_seconds: tuple[float, float, float]
    images_per_second: float
    resident_images_per_second: float
    share: float
    gpu_utilization: float | None
    sm_activity: float | None
    tensor_activity: float | None
    cpu_share: float
    peak_memory_bytes: int
    warmup_seconds: float


@dataclass(frozen=True)
class RungResult:
    """A rung, and its figures or why it has none.

    Attributes:
        rung: How it trained.
        figures: Its figures; None if it was left out.
        left_out: Why it was left out; empty if it was not.
    """

    rung: Rung
    figures: Figures | None
    left_out: str = ""


@dataclass(frozen=True)
class LadderReport:
    """A finished ladder.

    Attributes:
        path: The data, as given.
        folder: The image folder that the lower rungs read.
        packed: The packed images that the upper rungs read.
        work: The folder that holds the one that was made.
        samples: Images.
        classes: Number of classes.
        model: torchvision's name of the model.
        size: Side of the training crops in pixels.
        device: For example ``"cuda:0"`` or ``"cpu"``.
        in_memory: Whether all files were read into the page cache before the first rung.
        machine: As in :class:`fastdata.train.results.TrainReport`.
        rungs: From the lowest to the highest.
    """

    path: str
    folder: str
    packed: str
    work: str
    samples: int
    classes: int
    model: str
    size: int
    device: str
    in_memory: bool
    machine: dict[str, str | int]
    rungs: tuple[RungResult, ...]


@dataclass(frozen=True)
class ColdPass:
    """Training steps right after the kernel was asked to evict the data set's files.

    Attributes:
        images_per_second: Speed, including the loader's start.
        steps: Number of steps.
        from_storage: Share of the images' bytes that came from storage, not from memory; near 1 the
            pass was cold. None where the system does not count it.
    """

    images_per_second: float
    steps: int
    from_storage: float | None


@dataclass(frozen=True)
class CeilingReport:
    """The share of the ceiling, and what it was measured on.

    Attributes:
        path: The data, as given.
        samples: Images.
        model: torchvision's name of the model.
        size: Side of the training crops in pixels.
        batch_size: Images a step.
        amp: ``"off"``, ``"bf16"`` or ``"fp16"``.
        compile: Whether the model was compiled.
        channels_last: Whether weights and images had channels-last layout.
        threads: Decoding threads.
        device: For example ``"cuda:0"`` or ``"cpu"``.
        cold: The first pass; None if it was switched off.
        ceiling: The rounds after it.
        from_storage: Share of the images' bytes that came from storage in the rounds: near 0 the
            page cache was warm. None where the system does not count it.
        gpu_utilization: As in :class:`Figures`, in the timed steps on real data only.
        sm_activity: As in :class:`Figures`, in these steps.
        tensor_activity: As in :class:`Figures`, in these steps.
        cpu_share: As in :class:`Figures`, in these steps.
        peak_memory_bytes: As in :class:`Figures`, in these steps.
        machine: As in :class:`fastdata.train.results.TrainReport`.
    """

    path: str
    samples: int
    model: str
    size: int
    batch_size: int
    amp: str
    compile: bool
    channels_last: bool
    threads: int
    device: str
    cold: ColdPass | None
    ceiling: Ceiling
    from_storage: float | None
    gpu_utilization: float | None
    sm_activity: float | None
    tensor_activity: float | None
    cpu_share: float
    peak_memory_bytes: int
    machine: dict[str, str | int]
