"""One epoch: the training steps, what they report on the way, and validation."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from fastdata.batch.batch import Batch
from fastdata.loaders.loader import Loader
from fastdata.train import ranks
from fastdata.train.checkpoint import Checkpoints, Position
from fastdata.train.explain_errors import check_loss, explain_memory_errors
from fastdata.train.meter import now
from fastdata.train.optimizer import Schedule
from fastdata.train.recipe import Recipe
from fastdata.train.results import EpochResult
from fastdata.train.step import TrainStep
from fastdata.train.stop import Stop
from fastdata.train.watch import Watch

_READ_EVERY = 50  # steps between readings of the loss: each one makes the host wait for the device


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        phase: ``"warm-up"``, ``"train"``, ``"validate"`` or ``"ceiling"``.
        epoch: From 0.
        done: Steps done in this epoch, or rounds of the ceiling.
        total: Steps of this epoch, or rounds.
        loss: Mean loss of the epoch when it was last read; None before.
    """

    phase: str
    epoch: int
    done: int
    total: int
    loss: float | None = None


ProgressCallback = Callable[[Progress], None]


def steps_in_epoch(data: Loader, recipe: Recipe) -> int:
    """Steps of the optimiser in a full epoch; the last one may have fewer batches."""
    return math.ceil(len(data) / recipe.accumulate)


def train_epoch(
    step: TrainStep,
    data: Loader,
    recipe: Recipe,
    at: Position,
    *,
    rate: Schedule,
    saved: Checkpoints | None,
    stop: Stop,
    watch: Watch,
    tell: ProgressCallback,
) -> EpochResult:
    """Train for one epoch, or for the rest of it after a resume.

    Raises:
        DivergedError: The loss became infinite or NaN.
        OptionError: The device has too little memory.
    """
    epoch, steps, batches = len(at.epochs), steps_in_epoch(data, recipe), len(data)
    done = at.step - epoch * steps
    lr = rate(at.step - 1) if done else 0.0
    loss = None  # of this epoch, when it was last read
    since = now(step.device)

    # A checkpoint may lie between an epoch's last step and its end. Iterating the loader then would
    # start its next epoch.
    first = done * recipe.accumulate
    for number, batch in enumerate(data if first < batches else (), start=first):
        part = number % recipe.accumulate  # of this step
        parts = min(recipe.accumulate, batches - (number - part))
        complete = part == parts - 1
        lr = rate(at.step)
        with explain_memory_errors(recipe.batch_size, recipe.size):
            result = step(batch.images, batch.labels, lr, share=1 / parts, update=complete)
        at.meter.add(result, len(batch.labels))
        if not complete:
            continue

        at.step += 1
        done += 1
        watch.step()
        reading = done % _READ_EVERY == 0 or done == steps
        if reading:  # waits for the device and for the other ranks, which a step alone does not
            loss = check_loss(at.meter.read().loss, epoch=epoch, steps=done, lr=lr)
            watch.scalars(at.step, {"train/loss": loss, "train/lr": lr})
        # Ranks agree on stopping only where they wait for each other anyway.
        stopping = (reading or ranks.world_size() == 1) and stop.requested(step.device)
        if saved is not None and (stopping or saved.due(at.step)):
            at.seconds, since = at.seconds + now(step.device) - since, now(step.device)
            saved.write(at)
            since = now(step.device)  # the time to write does not count as training
        if stopping:
            stop.obey()
        tell(Progress("train", epoch, done, steps, loss))

    at.seconds += now(step.device) - since
    totals = at.meter.read()
    return EpochResult(
        epoch=epoch,
        loss=totals.loss,
        train_accuracy=totals.accuracy,
        val_accuracy=None,
        images_per_second=totals.images / at.seconds,
        lr=lr,
    )


@torch.no_grad()
def evaluate(step: TrainStep, batches: Iterable[Batch]) -> float:
    """Share of the valid samples that the model classifies correctly, from 0 to 1.

    Padding at the end of a rank's samples does not count. With several ranks, each with its part
    of the samples, it is the share among all of them, by the first rank's batch statistics; all
    ranks must call it. Averaged weights are used where there are any. The model is left in
    training mode.
    """
    tested = step.module if step.average is None else step.average.module
    ranks.broadcast(tested.buffers())
    step.module.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=step.device)  # correct, all: read once
    for batch in batches:
        correct = step.predict(batch.images).argmax(1) == batch.labels  # (N,) bool
        counts += torch.stack([(correct & batch.valid).sum(), batch.valid.sum()])
    step.module.train()
    correct_samples, samples = ranks.all_sum(counts).tolist()
    return float(correct_samples / max(1, samples))
