"""How to train: what decides the result in one frozen object, how it is run in another."""

import math
import os
from collections.abc import Collection
from dataclasses import dataclass

import torch

from fastdata.errors import OptionError

AMP = ("off", "bf16", "fp16")
OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("onecycle", "cosine")

# By optimiser: highest learning rate, for how many images a step it is, and weight decay.
# SGD: Goyal et al. 2017, arXiv:1706.02677. AdamW: DeiT, Touvron et al. 2021, arXiv:2012.12877.
_CUSTOMARY = {"sgd": (0.1, 256, 1e-4), "adamw": (5e-4, 512, 0.05)}
_RISE = {"onecycle": 0.3, "cosine": 0.05}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides the result of a training run, besides the data.

    Attributes:
        model: torchvision's name of the model, for example ``"resnet50"``.
        size: Side of the training crops in pixels; validation crops the centre of images scaled
            to 256/224 of it.
        epochs: Passes over the training data.
        batch_size: Images in a batch on each rank.
        accumulate: Batches whose gradients make one step of the optimiser. The batches left at
            the end of an epoch make a smaller step.
        lr: Highest learning rate; None is 0.1 for 256 images a step with SGD, 0.0005 for 512 with
            AdamW, in proportion to the images of all ranks and accumulated batches.
        optimizer: ``"sgd"``, with Nesterov momentum, or ``"adamw"``.
        momentum: Momentum of SGD.
        weight_decay: Decay of matrices and kernels; None is 0.0001 for SGD and 0.05 for AdamW.
        fused: Update all weights in one kernel, where the device has it.
        schedule: ``"onecycle"`` or ``"cosine"``.
        warmup: Share of the steps before the highest rate; None is 0.3 for one-cycle and 0.05 for
            cosine.
        clip: Maximum norm of a step's gradient; None does not clip.
        label_smoothing: Share of each label that is spread over all classes.
        mixup: Alpha of MixUp (torchvision's v2); 0 is off. With CutMix on, each batch gets one of
            the two.
        cutmix: Alpha of CutMix (torchvision's v2); 0 is off.
        erasing: Probability that a random rectangle of an image is erased.
        ema: Decay per step of a moving average of the weights, which validation then uses; None
            keeps no average.
        amp: Precision of the forward pass: ``"off"``, ``"bf16"`` or, on CUDA, ``"fp16"``.
        channels_last: Use channels-last memory layout for weights and images.
        compile: Compile the model with ``torch.compile``.
        checkpointing: Recompute the activations of the model's blocks in the backward pass. Saves
            memory, costs about a third more computation.
        tf32: Let CUDA multiply float32 in TF32, in matrices and convolutions; otherwise in neither.
        sync_bn: Compute batch statistics over all ranks (CUDA only).
        deterministic: Use only deterministic kernels, at the cost of speed. Otherwise cuDNN picks
            the fastest by trying them out.
        seed: Random seed for weights, order, crops, and everything random in a step.
    """

    model: str = "resnet18"
    size: int = 224
    epochs: int = 1
    batch_size: int = 64
    accumulate: int = 1
    lr: float | None = None
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float | None = None
    fused: bool = True
    schedule: str = "onecycle"
    warmup: float | None = None
    clip: float | None = None
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    erasing: float = 0.0
    ema: float | None = None
    amp: str = "off"
    channels_last: bool = False
    compile: bool = False
    checkpointing: bool = False
    tf32: bool = False
    sync_bn: bool = False
    deterministic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Check each field on its own; the device and the data are checked when training starts.

        Raises:
            OptionError: One is out of range.
        """
        for name in ("size", "epochs", "batch_size", "accumulate"):
            _at_least_one(name, getattr(self, name))
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("amp", self.amp, AMP)
        for name in ("lr", "clip"):
            _positive(name, getattr(self, name))
        for name in ("mixup", "cutmix", "weight_decay"):
            _not_negative(name, getattr(self, name))
        for name in ("momentum", "label_smoothing", "ema", "warmup"):
            _share(name, getattr(self, name), below=True)
        _share("erasing", self.erasing, below=False)

    def peak_lr(self, world_size: int = 1) -> float:
        """Highest learning rate, scaled by the images of a step on ``world_size`` ranks."""
        if self.lr is not None:
            return self.lr
        lr, images, _ = _CUSTOMARY[self.optimizer]
        return lr * self.batch_size * self.accumulate * world_size / images

    @property
    def decay(self) -> float:
        """Weight decay: the one given, or the customary one of the optimiser."""
        return _CUSTOMARY[self.optimizer][2] if self.weight_decay is None else self.weight_decay

    @property
    def rise(self) -> float:
        """Share of the steps before the highest rate: the one given, or the schedule's own."""
        return _RISE[self.schedule] if self.warmup is None else self.warmup


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a training run is carried out; nothing here changes its result.

    Attributes:
        device: Where to train; None is CUDA if there is a GPU, under torchrun the local rank's.
        threads: Decoding threads; None leaves a core or two to the training step.
        checkpoint: File that is written after each epoch, and when Ctrl-C or SIGTERM ends the run.
        checkpoint_every: Steps between further checkpoints within an epoch.
        resume: Resume from ``checkpoint`` if it exists. Only the device's index, ``threads`` and
            what is measured may then differ from the interrupted run.
        profile: File for a profiler's trace of a few steps, for chrome://tracing or Perfetto.
        tensorboard: Folder for TensorBoard's scalars.
        timeout: Seconds that a rank waits for the others before it fails.
        ceiling_seconds: Time to measure the share of the ceiling after training; 0 skips it.
    """

    device: str | torch.device | None = None
    threads: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int | None = None
    resume: bool = False
    profile: str | os.PathLike[str] | None = None
    tensorboard: str | os.PathLike[str] | None = None
    timeout: float = 600.0
    ceiling_seconds: float = 15.0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            OptionError: One is out of range.
        """
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise OptionError(
                f"checkpoint_every must be 1 or more steps, not {self.checkpoint_every}"
            )
        if not 0 < self.timeout < math.inf:
            raise OptionError(f"timeout must be a positive number of seconds, not {self.timeout}")
        if not 0 <= self.ceiling_seconds < math.inf:
            raise OptionError(f"ceiling_seconds must be 0 or more, not {self.ceiling_seconds}")


def _at_least_one(name: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise OptionError(f"{name} must be a whole number of 1 or more, not {value!r}")


def _one_of(name: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise OptionError(f"{name} must be a positive number, not {value}")


def _not_negative(name: str, value: float | None) -> None:
    if value is not None and not 0 <= value < math.inf:
        raise OptionError(f"{name} must be 0 or more, not {value}")


def _share(name: str, value: float | None, *, below: bool) -> None:
    if value is not None and not (0 <= value < 1 if below else 0 <= value <= 1):
        raise OptionError(f"{name} must be from 0 to {'below 1' if below else '1'}, not {value}")
