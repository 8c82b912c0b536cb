"""How to train: every switch of the reference run in one frozen value."""

import math
from collections.abc import Collection
from dataclasses import dataclass

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
    """Every switch of a training run; with the data and the seed it decides the result.

    What it does not hold (device, threads, files) changes where a run takes place, not what is
    computed in it.

    Attributes:
        model: torchvision's name of the model, for example ``"resnet50"``.
        size: Side of the training crops in pixels; validation crops the centre of images scaled
            to 256/224 of it.
        epochs: Passes over the training data.
        batch_size: Images that a rank takes at once.
        accumulate: Batches whose gradients make one step of the optimiser. What is left at the
            end of an epoch makes a smaller step.
        lr: Highest learning rate; None is 0.1 for 256 images a step with SGD, 0.0005 for 512 with
            AdamW, in proportion to the images of all ranks and accumulated batches.
        optimizer: ``"sgd"``, with Nesterov momentum, or ``"adamw"``.
        momentum: Of SGD.
        weight_decay: Of matrices and kernels; None is 0.0001 for SGD and 0.05 for AdamW.
        fused: Update all weights in one kernel, where the device has it.
        schedule: ``"onecycle"`` or ``"cosine"``.
        warmup: Share of the steps before the highest rate; None is 0.3 for one-cycle and 0.05 for
            cosine.
        clip: Largest norm of the gradient of a step; None leaves it as it is.
        label_smoothing: Share of each label that is spread over all classes.
        mixup: Alpha of MixUp (torchvision's v2); 0 is off. With CutMix on, each batch gets one of
            the two.
        cutmix: Alpha of CutMix (torchvision's v2); 0 is off.
        erasing: Probability that a random rectangle of an image is erased.
        ema: Decay by step of a moving average of the weights, which validation then uses; None
            for none.
        amp: Precision of the forward pass: ``"off"``, ``"bf16"`` or, on CUDA, ``"fp16"``.
        channels_last: Lay out weights and images channels last.
        compile: Call the model through ``torch.compile``.
        checkpointing: Keep no activations inside the model's blocks; the backward pass computes
            them anew. Saves memory, costs about a third more computation.
        tf32: Let CUDA multiply float32 in TF32, in matrices and convolutions; otherwise in neither.
        sync_bn: Batch statistics over all ranks (CUDA only).
        deterministic: Use only deterministic kernels, at the cost of speed. Otherwise cuDNN picks
            the fastest by trying them out.
        seed: Of weights, order, crops, and everything random in a step.
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
        """Check every field that does not depend on the data or the device.

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
        """Weight decay: the one given, or the optimiser's customary one."""
        return _CUSTOMARY[self.optimizer][2] if self.weight_decay is None else self.weight_decay

    @property
    def rise(self) -> float:
        """Share of the steps before the highest rate: the one given, or the schedule's own."""
        return _RISE[self.schedule] if self.warmup is None else self.warmup


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
