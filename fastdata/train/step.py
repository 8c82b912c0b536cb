"""One training step in its plain form: forward, loss, backward, update."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from fastdata.errors import OptionError
from fastdata.train import ranks
from fastdata.train.activation_checkpointing import checkpoint_blocks
from fastdata.train.device import amp_dtype
from fastdata.train.explain_errors import check_scores, explain_model_errors
from fastdata.train.optimizer import Average, make_optimizer
from fastdata.train.recipe import Recipe

Forward = Callable[[torch.Tensor], torch.Tensor]
"""From (N, 3, H, W) images to (N, classes) scores."""

_WARMUP_STEPS = 3  # cuDNN and the compiler settle within two; the third is at their final speed


class StepResult(NamedTuple):
    """Figures of one step, on the device: reading them waits for the step to end."""

    loss: torch.Tensor  # () float32, mean over the batch
    correct: torch.Tensor  # () int64, images classified correctly before the weights changed


class TrainStep:
    """Model, optimiser and loss scaler of one training run; calling it makes one step.

    Under torch.distributed gradients are averaged over the ranks, so that a step is that of all
    their batches together.

    Attributes:
        module: The model, its weights on the device.
        model: The same weights as training calls them: compiled, distributed, or ``module``.
        average: Moving average of the weights, or None.
        optimizer: Over the weights of ``module``.
        scaler: Scale of the loss; it does nothing unless the type is float16.
        device: Where the weights are and the batches must be.
    """

    def __init__(self, recipe: Recipe, module: nn.Module, device: torch.device) -> None:
        """Move the model to the device and prepare its optimiser.

        Args:
            recipe: How to train. Its data, schedule and seed do not matter here.
            module: Model from (N, 3, H, W) images to (N, classes) scores.
            device: Where to train.

        Raises:
            OptionError: The device cannot do what the recipe asks for, or the model has no blocks
                to checkpoint.
        """
        _check_switches(recipe, device)
        self.device = device
        self._dtype = amp_dtype(recipe.amp, device)
        self._layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self._smoothing = recipe.label_smoothing
        self._clip = recipe.clip

        module = module.to(device, memory_format=self._layout)  # type: ignore[call-overload]
        if recipe.sync_bn and ranks.world_size() > 1:
            module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
        self.module = module
        # A copy of the whole module, so it must come before anything that wraps its blocks.
        self.average = None if recipe.ema is None else Average(module, recipe.ema)
        if recipe.checkpointing:
            checkpoint_blocks(module)

        # The compiler comes last: it cuts its graphs where the first gradients can be sent to
        # other ranks while the rest is computed.
        self._ddp = _distributed(module, device)
        tested = module if self.average is None else self.average.module
        compiled = torch.compile if recipe.compile else _uncompiled
        self.model: Forward = compiled(self._ddp or module)
        self._tested: Forward = compiled(tested)

        self.optimizer = make_optimizer(recipe, module, device)
        # fp16 gradients underflow without a scale; bf16 has float32's range and needs none
        self.scaler = torch.amp.GradScaler(device.type, enabled=self._dtype is torch.float16)

    def __call__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        lr: float,
        *,
        share: float = 1.0,
        update: bool = True,
    ) -> StepResult:
        """Make one step, or a part of it when batches are accumulated.

        Nothing here waits for the device, except in fp16 with an optimiser that is not fused,
        where the loss scaler reads whether a gradient overflowed.

        Args:
            images: (N, 3, H, W) normalised floats on the device.
            labels: (N,) int64 on the device, or (N, classes) shares.
            lr: Learning rate of this step.
            share: Weight of this batch in the step; 1 / K for each of K accumulated batches.
            update: Whether this batch completes the step. Until then gradients add up, and no
                rank waits for another.
        """
        with nullcontext() if update or self._ddp is None else self._ddp.no_sync():
            scores = self.scores(images)  # (N, classes)
            loss = cross_entropy(scores.float(), labels, label_smoothing=self._smoothing)
            self.scaler.scale(loss * share).backward()
        if update:
            self._update(lr)
        expected = labels if labels.ndim == 1 else labels.argmax(1)  # of a mix the larger part
        return StepResult(loss.detach(), (scores.detach().argmax(1) == expected).sum())

    def _update(self, lr: float) -> None:
        """Update the weights from the accumulated gradients, and clear those."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self._clip is not None:
            self.scaler.unscale_(self.optimizer)  # the norm is that of the real gradients
            clip_grad_norm_(self.module.parameters(), self._clip)
        self.scaler.step(self.optimizer)  # plain optimizer.step() unless amp is fp16
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)  # the next backward pass then need not add
        if self.average is not None:
            self.average.update()

    def scores(self, images: torch.Tensor) -> torch.Tensor:
        """Forward pass as in training: (N, 3, H, W) images to (N, classes) scores."""
        return self._forward(self.model, images)

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """Forward pass for evaluation, by the averaged weights if there are any, on this rank."""
        return self._forward(self._tested, images)

    def _forward(self, model: Forward, images: torch.Tensor) -> torch.Tensor:
        images = images.contiguous(memory_format=self._layout)
        with torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None):
            return model(images)

    def warm_up(self, batch_size: int, size: int, *, classes: int | None = None) -> None:
        """Make a few steps on noise, then undo them.

        Compilation, the choice of kernels and the first allocations happen here, not in the timed
        steps. A model that cannot take such a batch fails here, before any data is read.

        Args:
            batch_size: Images a batch.
            size: Their side in pixels.
            classes: Scores that the model must give for an image; None does not check.

        Raises:
            OptionError: The model cannot take a batch of this shape, gives another number of
                scores, or needs more memory than the device has.
        """
        # A generator of its own: the run's random numbers must not depend on the warm-up.
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(batch_size, 3, size, size, generator=generator)
        images = images.to(self.device, self._dtype, memory_format=torch.channels_last)
        labels = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        self.module.train()
        with (
            explain_model_errors(self.module, batch_size, size),
            ranks.explain_lost_ranks(),
            self.preserved(),
        ):
            if classes is not None:
                with torch.no_grad():
                    check_scores(self.module, self._forward(self.module, images), classes)
            for _ in range(_WARMUP_STEPS):
                self(images, labels, lr=0.0)

    def parts(self) -> dict[str, Any]:
        """Everything that a step changes, by name, but torch's random state."""
        parts = {"module": self.module, "optimizer": self.optimizer, "scaler": self.scaler}
        return parts if self.average is None else {**parts, "average": self.average}

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore weights, optimiser, loss scale and random state on exit, to the bit."""
        saved = [(part, copy.deepcopy(part.state_dict())) for part in self.parts().values()]
        devices = [self.device] if self.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices):
                yield
        finally:
            for part, state in saved:
                part.load_state_dict(state)


def _check_switches(recipe: Recipe, device: torch.device) -> None:
    if recipe.sync_bn and device.type != "cuda":
        raise OptionError(f"sync_bn needs a CUDA device, not {device.type}; leave it off")
    if recipe.checkpointing and recipe.compile:
        raise OptionError(
            "checkpointing and compile exclude each other; compiled models recompute activations "
            "by torch._functorch.config.activation_memory_budget"
        )


def _distributed(module: nn.Module, device: torch.device) -> DistributedDataParallel | None:
    """The model with gradients averaged over the ranks; None where there is one rank."""
    if ranks.world_size() == 1:
        return None
    ids = [device.index] if device.type == "cuda" else None
    # Buffers are batch norm's running statistics, which no training step reads. Each rank keeps its
    # own; validation and checkpoints take the first rank's.
    return DistributedDataParallel(
        module, device_ids=ids, gradient_as_bucket_view=True, broadcast_buffers=False
    )


def _uncompiled(network: nn.Module) -> nn.Module:
    return network
