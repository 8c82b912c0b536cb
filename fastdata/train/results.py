"""Figures of a training run: plain frozen data, JSON through ``dataclasses.asdict``."""

from dataclasses import dataclass

from fastdata.train.recipe import Recipe


@dataclass(frozen=True)
class EpochResult:
    """One pass over the training data.

    Attributes:
        epoch: From 0.
        loss: Mean cross-entropy over the pass, as the weights changed.
        train_accuracy: Share of the augmented training images classified correctly during the
            pass, as the weights changed; not a measure of generalisation.
        val_accuracy: Share of all validation images classified correctly after the pass, each
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
        spinning: On that batch, while the loader's batches are discarded; None where that was not
            measured.
    """

    real: float
    resident: float
    spinning: float | None = None


@dataclass(frozen=True)
class Ceiling:
    """How close training comes to the speed that it would have if loading cost nothing.

    Attributes:
        real_images_per_second: Median with the loader's batches.
        resident_images_per_second: Median with one batch that stays on the device.
        share: Median over the rounds of real / resident. Ratios are taken within rounds, because
            a machine that slows down changes both parts of a round alike. Noise can push it a
            little above 1.
        rounds: Speeds of each round.
        steps: Timed steps of each run.
        spinning_images_per_second: Median with the resident batch while the loader's batches are
            discarded. It is below the resident speed by what the loader takes from the step by
            being busy; the real speed is below it by waiting for batches.
        spinning_share: Median over the rounds of spinning / resident, as ``share``.
        loader_share: Median share of the real runs in which the training thread itself computed
            inside the loader's ``next()``: its CPU time over the run's duration.
        wait_share: Median share of them spent inside ``next()``. Where the device is the
            bottleneck, the host waits there for it, so this alone says nothing about the loader.
        device_wait_share: Median share of them in which the device had no batch to work on, from
            events in its stream; None except on CUDA.
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
        path: Training data, as given.
        val: Validation data, as given, or None.
        samples: Training samples.
        val_samples: Validation samples; 0 without validation data.
        classes: Number of classes.
        model: torchvision's name of the model, or the class of the caller's.
        parameters: Number of the model's parameters.
        recipe: What decided the result.
        world_size: Number of ranks.
        lr: Highest learning rate.
        device: For example ``"cuda:0"`` or ``"cpu"``.
        epochs: Figures of each epoch.
        images_per_second: Median over the epochs after the first, which also warms caches; of
            the only one where there is one.
        warmup_seconds: Time of the warm-up steps, compilation included.
        ceiling: Share of the ceiling, or None where it was not measured.
        gpu_utilization: Mean share of the training time in which the GPU was running a kernel,
            from NVML's samples; None where there is no NVIDIA GPU or no NVML.
        peak_memory_bytes: Peak memory of tensors on the device (CUDA), or peak resident memory of
            the process (CPU).
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
