"""What a training run found out: plain frozen data, JSON through ``dataclasses.asdict``."""

from dataclasses import dataclass

from fastdata.train.recipe import Recipe


@dataclass(frozen=True)
class EpochResult:
    """One pass over the training data.

    Attributes:
        epoch: From 0.
        loss: Mean cross-entropy over the pass, as the weights changed.
        train_accuracy: Share of the augmented training images classified rightly during the
            pass, as the weights changed; not a measure of generalisation.
        val_accuracy: Share of all validation images classified rightly after the pass, each
            counted once, by the averaged weights where there are any; None without validation data.
        images_per_second: Training images a second of all ranks together, loading included,
            validation not.
        lr: Learning rate of the last step.
    """

    epoch: int
    loss: float
    train_accuracy: float
    val_accuracy: float | None
    images_per_second: float
    lr: float


@dataclass(frozen=True)
class Round:
    """Short runs of the same steps, one after the other, in images a second.

    Attributes:
        real: On the loader's batches.
        resident: On one batch that stays on the device.
        spinning: On that batch, beside a loader whose batches are thrown away; None where that
            was not measured.
    """

    real: float
    resident: float
    spinning: float | None = None


@dataclass(frozen=True)
class Ceiling:
    """How near training comes to the speed that it would have if loading cost nothing.

    Attributes:
        real_images_per_second: Median with the loader's batches.
        resident_images_per_second: Median with one batch that stays on the device.
        share: Median over the rounds of real / resident. Each round gives its own ratio, so that
            a machine that slows down half-way changes both of its parts alike. Noise can push it
            a little above 1.
        rounds: What each round measured.
        steps: Timed steps of each run.
        spinning_images_per_second: Median with the resident batch beside a loader whose batches
            are thrown away. What it lacks to the resident speed is what loading takes from the
            step by being busy; what the real speed lacks to it is waiting for batches.
        spinning_share: Median over the rounds of spinning / resident, as ``share``.
        loader_share: Median share of the real runs in which the training thread itself computed
            inside the loader's ``next()``: its CPU time over the run's duration.
        wait_share: Median share of them that passed inside ``next()``. Where the device limits, the
            host waits there for it, so this alone says nothing about the loader.
        device_wait_share: Median share of them in which the device had no batch to work on, from
            events in its stream; None elsewhere than on CUDA.
    """

    real_images_per_second: float
    resident_images_per_second: float
    share: float
    rounds: tuple[Round, ...]
    steps: int
    spinning_images_per_second: float | None = None
    spinning_share: float | None = None
    loader_share: float | None = None
    wait_share: float | None = None
    device_wait_share: float | None = None


@dataclass(frozen=True)
class TrainReport:
    """A finished training run.

    Attributes:
        path: Training data as it was named.
        val: Validation data as it was named, or None.
        samples: Training samples.
        val_samples: Validation samples; 0 without validation data.
        classes: Number of classes.
        model: torchvision's name of the model, or the class of the caller's.
        parameters: Trained numbers of the model.
        recipe: Every switch of the run.
        world_size: Ranks that trained together.
        lr: Highest learning rate.
        device: For example ``"cuda:0"`` or ``"cpu"``.
        epochs: What each pass found.
        images_per_second: Median over the epochs after the first, which also warms caches; of
            the only one where there is one.
        warmup_seconds: What came before the first epoch, compilation included.
        ceiling: Share of the ceiling, or None where it was not measured.
        gpu_utilization: Mean share of the training time in which the GPU was running a kernel,
            from NVML's samples; None where there is no NVIDIA GPU or no NVML.
        peak_memory_bytes: Most device memory that tensors held (CUDA), or most resident memory
            that the process has had (CPU).
        machine: Names and versions: ``cpu``, ``cores``, ``gpu``, ``python``, ``torch`` ...
    """

    path: str
    val: str | None
    samples: int
    val_samples: int
    classes: int
    model: str
    parameters: int
    recipe: Recipe
    world_size: int
    lr: float
    device: str
    epochs: tuple[EpochResult, ...]
    images_per_second: float
    warmup_seconds: float
    ceiling: Ceiling | None
    gpu_utilization: float | None
    peak_memory_bytes: int
    machine: dict[str, str | int]
