"""One optimiser step on one device, in its plain form."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fastdata.errors import OptionError
from fastdata.train.models import parameter_groups

MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4

_AMP = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_REASON = 400  # characters of another library's error that are passed on
_WARMUP_STEPS = 3  # cuDNN and the compiler are settled after two; the third shows it


class StepResult(NamedTuple):
    """What one step leaves behind, on the device: reading it waits for the step to end."""

    loss: torch.Tensor  # () float32, mean over the batch
    correct: torch.Tensor  # () int64, images classified rightly before the weights changed


def amp_dtype(amp: str, device: torch.device) -> torch.dtype | None:
    """Floating-point type of the forward pass, or None for float32 throughout.

    Raises:
        OptionError: An unknown name, or fp16 on a device other than CUDA.
    """
    if amp not in _AMP:
        raise OptionError(f"amp must be one of {', '.join(_AMP)}, not {amp!r}")
    if amp == "fp16" and device.type != "cuda":
        raise OptionError(f"amp 'fp16' needs a CUDA device, not {device.type}; use 'bf16' there")
    return _AMP[amp]


class TrainStep:
    """Model, optimiser and loss scaler of one training run; called, it makes one step.

    Attributes:
        module: The model, its weights on the device.
        model: The same weights as they are called: ``module``, or its compiled form.
        optimizer: SGD with Nesterov momentum over ``module``.
        device: Where the weights are and the batches must be.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        device: torch.device,
        dtype: torch.dtype | None = None,
        compile: bool = False,
        channels_last: bool = False,
    ) -> None:
        """Move the model to the device and prepare its optimiser.

        Args:
            module: Model from (N, 3, H, W) images to (N, classes) scores.
            device: Where to train.
            dtype: Type that autocast uses, from :func:`amp_dtype`; None for no autocast.
            compile: Call the model through ``torch.compile``.
            channels_last: Keep weights and images in channels-last memory.
        """
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self.device = device
        self._dtype = dtype
        self.module = module.to(device, memory_format=self._layout)  # type: ignore[call-overload]
        self.model: Callable[[torch.Tensor], torch.Tensor] = (
            torch.compile(self.module) if compile else self.module
        )
        self.optimizer = torch.optim.SGD(
            parameter_groups(self.module, WEIGHT_DECAY),
            lr=0.0,  # set in every step
            momentum=MOMENTUM,
            nesterov=True,
        )
        # fp16 gradients underflow without a scale; bf16 has float32's range and needs none
        self._scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor, lr: float) -> StepResult:
        """Make one step.

        Nothing in it waits for the device, except in fp16, where the loss scaler reads whether a
        gradient overflowed.

        Args:
            images: (N, 3, H, W) normalised floats on the device.
            labels: (N,) int64 on the device.
            lr: Learning rate of this step.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        scores = self.scores(images)  # (N, classes)
        loss = cross_entropy(scores.float(), labels)
        self._scaler.scale(loss).backward()
        self._scaler.step(self.optimizer)  # plain optimizer.step() unless amp is fp16
        self._scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return StepResult(loss.detach(), (scores.detach().argmax(1) == labels).sum())

    def scores(self, images: torch.Tensor) -> torch.Tensor:
        """Forward pass: (N, 3, H, W) images to (N, classes) scores, under autocast if asked for."""
        images = images.contiguous(memory_format=self._layout)
        with torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None):
            return self.model(images)

    def warm_up(self, batch_size: int, size: int) -> None:
        """Make a few steps on noise of the training's shape, then take them back.

        Compilation, the choice of kernels and the first allocations happen here, not in the
        figures. A model that cannot take such a batch fails here too, before any data is read.

        Raises:
            OptionError: The model cannot take a batch of this shape.
        """
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(batch_size, 3, size, size, generator=generator)
        images = images.to(self.device, self._dtype, memory_format=torch.channels_last)
        labels = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        self.module.train()
        try:
            with self.preserved():
                for _ in range(_WARMUP_STEPS):
                    self(images, labels, lr=0.0)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:_REASON]  # the compiler's run to pages
            raise OptionError(
                f"{type(self.module).__name__} cannot train on batches of {batch_size} images of "
                f"{size}x{size} pixels: {reason}; choose another model, size or batch size"
            ) from error

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put weights, optimiser, loss scale and random state back, to the bit, on leaving."""
        weights = copy.deepcopy(self.module.state_dict())
        optimizer = copy.deepcopy(self.optimizer.state_dict())
        scaler = self._scaler.state_dict()
        devices = [self.device] if self.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices):
                yield
        finally:
            self.module.load_state_dict(weights)
            self.optimizer.load_state_dict(optimizer)
            self._scaler.load_state_dict(scaler)
