"""One optimiser step, in its plain form: forward, loss, backward, update."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from fastdata.train import ranks
from fastdata.train.activation_checkpointing import checkpoint_blocks
from fastdata.train.ema import Average
from fastdata.train.explain_errors import check_scores, fitting
from fastdata.train.models import parameter_groups
from fastdata.train.network import check_switches, distributed, on_device
from fastdata.train.optimizer import make_optimizer
from fastdata.train.precision import amp_dtype
from fastdata.train.recipe import Recipe

__all__ = ["StepResult", "TrainStep", "amp_dtype"]

Forward = Callable[[torch.Tensor], torch.Tensor]
"""From (N, 3, H, W) images to (N, classes) scores."""

_WARMUP_STEPS = 3  # cuDNN and the compiler are settled after two; the third shows it


class StepResult(NamedTuple):
    """What one step leaves behind, on the device: reading it waits for the step to end."""

    loss: torch.Tensor  # () float32, mean over the batch
    correct: torch.Tensor  # () int64, images classified rightly before the weights changed


class TrainStep:
    """Model, optimiser and loss scaler of one training run; called, it makes one step.

    Under torch.distributed with several ranks, gradients are averaged over them, so that the
    step is that of all their batches together.

    Attributes:
        module: The model, its weights on the device.
        model: The same weights as training calls them: compiled, distributed, or ``module``.
        average: Moving average of the weights, or None.
        optimizer: Over the weights of ``module``.
        scaler: Scale of the loss; it does nothing unless the type is float16.
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
        optimizer: str = "sgd",
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        fused: bool = True,
        label_smoothing: float = 0.0,
        clip: float | None = None,
        ema: float | None = None,
        checkpointing: bool = False,
        sync_bn: bool = False,
    ) -> None:
        """Move the model to the device and prepare its optimiser.

        Args:
            module: Model from (N, 3, H, W) images to (N, classes) scores.
            device: Where to train.
            dtype: Type that autocast uses, from :func:`amp_dtype`; None for no autocast.
            compile: This and the rest as :class:`~fastdata.train.recipe.Recipe` has it.
            channels_last: Memory layout of weights and images.
            optimizer: ``"sgd"`` or ``"adamw"``.
            momentum: Of SGD.
            weight_decay: Of matrices and kernels; nothing else decays.
            fused: Update all weights in one kernel.
            label_smoothing: Share of a label that is spread over all classes.
            clip: Largest norm of the gradient.
            ema: Decay by step of a moving average of the weights.
            checkpointing: Compute the activations of blocks anew in the backward pass.
            sync_bn: Batch statistics over all ranks.

        Raises:
            OptionError: Synchronised statistics elsewhere than on CUDA, or checkpointing of a
                model without blocks or together with ``compile``.
        """
        check_switches(device, compile=compile, checkpointing=checkpointing, sync_bn=sync_bn)
        self.device = device
        self._dtype = dtype
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._smoothing = label_smoothing
        self._clip = clip

        # The weights, and what is made of them.
        self.module = on_device(module, device, self._layout, sync_bn=sync_bn)
        self.average = None if ema is None else Average(self.module, ema)
        if checkpointing:
            checkpoint_blocks(self.module)

        # The forms in which they are called. The compiler comes last: it cuts its graphs where
        # the first gradients can be sent to other ranks while the rest is computed.
        self._ddp = distributed(self.module, device)
        tested = self.module if self.average is None else self.average.module
        compiled = torch.compile if compile else _as_it_is
        self.model: Forward = compiled(self._ddp or self.module)
        self._tested: Forward = compiled(tested)

        self.optimizer = make_optimizer(
            optimizer,
            parameter_groups(self.module, weight_decay),
            momentum=momentum, fused=fused, device=device,
        )  # fmt: skip
        # fp16 gradients underflow without a scale; bf16 has float32's range and needs none
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)

    @classmethod
    def of(cls, recipe: Recipe, module: nn.Module, device: torch.device) -> Self:
        """The step of a recipe, for a model that was built before.

        Raises:
            OptionError: The device cannot do what the recipe asks for.
        """
        return cls(
            module,
            device=device,
            dtype=amp_dtype(recipe.amp, device),
            compile=recipe.compile,
            channels_last=recipe.channels_last,
            optimizer=recipe.optimizer,
            momentum=recipe.momentum,
            weight_decay=recipe.decay,
            fused=recipe.fused,
            label_smoothing=recipe.label_smoothing,
            clip=recipe.clip,
            ema=recipe.ema,
            checkpointing=recipe.checkpointing,
            sync_bn=recipe.sync_bn,
        )

    def __call__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        lr: float,
        *,
        share: float = 1.0,
        update: bool = True,
    ) -> StepResult:
        """Make one step, or one part of it.

        Nothing in it waits for the device, except in fp16 with an optimiser that is not fused,
        where the loss scaler reads whether a gradient overflowed.

        Args:
            images: (N, 3, H, W) normalised floats on the device.
            labels: (N,) int64 on the device, or (N, classes) shares.
            lr: Learning rate of this step.
            share: Weight of this batch in the step; 1 / K for each of K accumulated batches.
            update: Whether this batch completes the step; until then gradients add up, and no
                rank waits for another.
        """
        with nullcontext() if update or self._ddp is None else self._ddp.no_sync():
            scores = self.scores(images)  # (N, classes)
            loss = cross_entropy(scores.float(), labels, label_smoothing=self._smoothing)
            self.scaler.scale(loss * share).backward()
        if update:
            self._update(lr)
        rightly = labels if labels.ndim == 1 else labels.argmax(1)  # of a mix the larger part
        return StepResult(loss.detach(), (scores.detach().argmax(1) == rightly).sum())

    def _update(self, lr: float) -> None:
        """Change the weights by the gradients that have added up, and forget these."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self._clip is not None:
            self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.module.parameters(), self._clip)
        self.scaler.step(self.optimizer)  # plain optimizer.step() unless amp is fp16
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()

    def scores(self, images: torch.Tensor) -> torch.Tensor:
        """Forward pass as in training: (N, 3, H, W) images to (N, classes) scores."""
        return self._forward(self.model, images)

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """Forward pass for evaluation, with averaged weights where there are any; no ranks meet."""
        return self._forward(self._tested, images)

    def _forward(self, model: Forward, images: torch.Tensor) -> torch.Tensor:
        images = images.contiguous(memory_format=self._layout)
        with torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None):
            return model(images)

    def warm_up(self, batch_size: int, size: int, *, classes: int | None = None) -> None:
        """Make a few steps on noise of the training's shape, then take them back.

        Compilation, the choice of kernels and the first allocations happen here, not in the
        figures. A model that cannot take such a batch fails here too, before any data is read.

        Args:
            batch_size: Images a batch.
            size: Their side in pixels.
            classes: Scores that the model has to give for an image; None takes what comes.

        Raises:
            OptionError: The model cannot take a batch of this shape, or gives other scores, or
                the device has too little memory.
        """
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(batch_size, 3, size, size, generator=generator)
        images = images.to(self.device, self._dtype, memory_format=torch.channels_last)
        labels = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        self.module.train()
        with fitting(self.module, batch_size, size), ranks.expected(), self.preserved():
            if classes is not None:
                with torch.no_grad():
                    check_scores(self.module, self._forward(self.module, images), classes)
            for _ in range(_WARMUP_STEPS):
                self(images, labels, lr=0.0)

    def parts(self) -> dict[str, Any]:
        """Everything with a state that a step changes, by name; the random numbers are torch's."""
        parts = {"module": self.module, "optimizer": self.optimizer, "scaler": self.scaler}
        return parts if self.average is None else {**parts, "average": self.average}

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put weights, optimiser, loss scale and random state back, to the bit, on leaving."""
        kept = [(part, copy.deepcopy(part.state_dict())) for part in self.parts().values()]
        devices = [self.device] if self.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices):
                yield
        finally:
            for part, state in kept:
                part.load_state_dict(state)


def _as_it_is(network: nn.Module) -> nn.Module:
    return network
