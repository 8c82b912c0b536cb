"""One epoch of the reference run."""

import math

from fastdata.errors import OptionError
from fastdata.loaders.loader import Loader
from fastdata.train import ranks
from fastdata.train.checkpoint import Checkpoints, Position
from fastdata.train.explain_errors import memory_for
from fastdata.train.meter import now
from fastdata.train.progress import Progress, ProgressCallback
from fastdata.train.recipe import Recipe
from fastdata.train.results import EpochResult
from fastdata.train.schedule import Schedule
from fastdata.train.step import TrainStep
from fastdata.train.stop import Stop
from fastdata.train.watch import Watch

_READ_EVERY = 50  # steps between readings of the loss: each one makes the host wait for the device


def steps_in_epoch(data: Loader, recipe: Recipe) -> int:
    """Steps of the optimiser in a full pass, the last one perhaps of fewer batches."""
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
    """Train on one pass over ``data``, or on what is left of it.

    Raises:
        OptionError: The loss became infinite or NaN, or the device has too little memory.
    """
    epoch, steps, batches = len(at.epochs), steps_in_epoch(data, recipe), len(data)
    done = at.step - epoch * steps
    lr = rate(at.step - 1) if done else 0.0
    loss = None
    since = now(step.device)

    # A pass that is over is not begun: the loader's next one would be the next epoch's.
    first = done * recipe.accumulate
    for number, batch in enumerate(data if first < batches else (), start=first):
        place = number % recipe.accumulate
        together = min(recipe.accumulate, batches - (number - place))  # batches of this step
        complete = place == together - 1
        lr = rate(at.step)
        with memory_for(recipe.batch_size, recipe.size):
            result = step(batch.images, batch.labels, lr, share=1 / together, update=complete)
        at.meter.add(result, len(batch.labels))
        if not complete:
            continue

        at.step += 1
        done += 1
        watch.step()
        reading = done % _READ_EVERY == 0 or done == steps
        if reading:  # the only waits for the device, and for the other ranks beside the step's own
            loss = _finite(at.meter.read().loss, epoch=epoch, done=done, lr=lr)
            watch.scalars(at.step, {"train/loss": loss, "train/lr": lr})
        stopping = (reading or ranks.count() == 1) and stop.wished(step.device)
        if saved is not None and (stopping or saved.due(at.step)):
            at.seconds, since = at.seconds + now(step.device) - since, now(step.device)
            saved.write(at)
            since = now(step.device)  # writing is no training
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


def _finite(loss: float, *, epoch: int, done: int, lr: float) -> float:
    if not math.isfinite(loss):
        raise OptionError(
            f"the loss became {loss} within the first {done} steps of epoch {epoch} "
            f"(learning rate {lr:g}); train with a lower lr, or with amp off"
        )
    return loss
