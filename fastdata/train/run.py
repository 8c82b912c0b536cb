"""The reference training run, from a data set to its figures; read ``train`` top to bottom."""

import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from torch import nn

from fastdata.loaders.loader import Loader
from fastdata.train import checkpoint as checkpoints
from fastdata.train import ranks
from fastdata.train.ceiling import ROUNDS, measure_ceiling
from fastdata.train.checkpoint import Checkpoints, Position
from fastdata.train.data import open_data
from fastdata.train.device import kernels, pick_device, seed_rank, seeded
from fastdata.train.loop import Progress, ProgressCallback, evaluate, steps_in_epoch, train_epoch
from fastdata.train.meter import (
    PassMeter,
    UtilizationSampler,
    machine,
    now,
    peak_memory,
    reset_peak_memory,
)
from fastdata.train.models import build
from fastdata.train.optimizer import rates
from fastdata.train.recipe import Recipe, Setup
from fastdata.train.results import Ceiling, EpochResult, TrainReport
from fastdata.train.step import TrainStep
from fastdata.train.stop import Stop
from fastdata.train.watch import Watch

_RECIPE, _SETUP = Recipe(), Setup()


def train(
    path: str | os.PathLike[str],
    recipe: Recipe = _RECIPE,
    setup: Setup = _SETUP,
    *,
    val: str | os.PathLike[str] | None = None,
    network: nn.Module | None = None,
    progress: ProgressCallback | None = None,
) -> TrainReport:
    """Train an image classifier from scratch, and measure its speed.

    The same data and recipe give the same weights to the bit on the same CPU, interrupted and
    resumed or not. Under torchrun each process is a rank with its share of each step. torch's own
    random state is not changed.

    Args:
        path: Training data: tar shards, an ``.lmdb`` file, or class folders of images.
        recipe: What decides the result.
        setup: Device, checkpoints, tracing: what does not.
        val: Validation data with the same classes.
        network: A model of your own, from (N, 3, H, W) to (N, classes), in place of the recipe's.
            It is trained in place, and must start with the same weights on every rank.
        progress: Called after every step, on the first rank.

    Raises:
        OptionError: An argument does not fit the data or the device, or the device has too little
            memory.
        DivergedError: The loss became infinite or NaN.
        NotADatasetError: There is no data set at ``path`` or ``val``.
        CorruptError: One of them is damaged.
        DestinationError: The checkpoint exists and ``setup.resume`` is off, or it cannot be
            written.
        StateError: The checkpoint is damaged, or of another run.
        RankError: Another rank ended, or does not answer.
        MissingExtraError: torchvision or TensorBoard is not installed.
    """
    device = pick_device(setup.device)

    with ExitStack() as stack:
        stack.enter_context(ranks.process_group(device, setup.timeout))
        stack.enter_context(ranks.explain_lost_ranks())
        stack.enter_context(kernels(recipe, device))
        stack.enter_context(seeded(recipe.seed, device))
        world_size = ranks.world_size()
        tell = progress if progress is not None and ranks.rank() == 0 else lambda _: None
        resuming = checkpoints.prepare(setup, device)

        # Data: batches arrive on the device, normalised, in the type of the forward pass.
        data, held_out = open_data(
            path, val, recipe, device=device, threads=setup.threads, closing=stack
        )
        classes = data.source.classes

        # Model, optimiser, learning rates; then everything that happens only once.
        name = recipe.model if network is None else type(network).__name__
        if network is None:
            network = build(recipe.model, classes=len(classes), size=recipe.size)
        step = TrainStep(recipe, network, device)
        steps = recipe.epochs * steps_in_epoch(data, recipe)
        peak = recipe.peak_lr(world_size)
        rate = rates(recipe, steps=steps, peak=peak)
        tell(Progress("warm-up", 0, 0, 1))
        started = now(device)
        step.warm_up(recipe.batch_size, recipe.size, classes=len(classes))
        warmup_seconds = now(device) - started
        seed_rank(recipe.seed, ranks.rank())

        # Resume, if an earlier run was interrupted.
        at = Position(PassMeter(device))
        saved = None
        if setup.checkpoint is not None:
            run = checkpoints.identity(recipe, name, data.source, device)
            saved = Checkpoints(setup, run=run, step=step, data=data)
            if resuming:
                saved.restore(at)

        # Train; after each epoch measure the exact accuracy on images that were held out.
        watch = stack.enter_context(Watch(setup, device=device, steps=steps - at.step))
        # Without a checkpoint there is nothing to save first, and a signal may end the run at once.
        stop = Stop() if saved is None else stack.enter_context(Stop())
        reset_peak_memory(device)
        gpu = UtilizationSampler(device)
        while len(at.epochs) < recipe.epochs:
            with gpu:
                result = train_epoch(
                    step,
                    data,
                    recipe,
                    at,
                    rate=rate,
                    saved=saved,
                    stop=stop,
                    watch=watch,
                    tell=tell,
                )
            if held_out is not None:
                tell(Progress("validate", result.epoch, 0, len(held_out), result.loss))
                result = replace(result, val_accuracy=evaluate(step, held_out))
            watch.scalars(at.step, _scalars(result))
            at.finish_epoch(result, PassMeter(device))
            if saved is not None:
                saved.write(at)
                if stop.requested(device):
                    stop.obey()
        peak_bytes = peak_memory(device)  # before the ceiling, which needs more

        # The share of the ceiling; its steps are undone.
        ceiling = _ceiling(step, data, setup.ceiling_seconds, tell)

        return TrainReport(
            path=os.fspath(path),
            val=None if val is None else os.fspath(val),
            samples=len(data.source),
            val_samples=0 if held_out is None else len(held_out.source),
            classes=len(classes),
            model=name,
            parameters=sum(p.numel() for p in network.parameters()),
            recipe=recipe,
            world_size=world_size,
            lr=peak,
            device=str(device),
            epochs=tuple(at.epochs),
            images_per_second=_typical_speed(at.epochs),
            warmup_seconds=warmup_seconds,
            ceiling=ceiling,
            gpu_utilization=gpu.mean(),
            peak_memory_bytes=peak_bytes,
            machine=machine(device),
        )


def _ceiling(
    step: TrainStep, data: Loader, seconds: float, tell: ProgressCallback
) -> Ceiling | None:
    """The share of the ceiling; None if no time is given for it."""
    if not seconds:
        return None

    def progress(done: int) -> None:
        tell(Progress("ceiling", 0, done, ROUNDS))

    return measure_ceiling(step, data, seconds=seconds, progress=progress)


def _typical_speed(results: Sequence[EpochResult]) -> float:
    """Median images a second of the epochs after the first; of the only one if there is one."""
    return statistics.median(result.images_per_second for result in (results[1:] or results))


def _scalars(result: EpochResult) -> dict[str, float]:
    """An epoch's figures by their names in TensorBoard."""
    values = {
        "train/accuracy": result.train_accuracy,
        "train/images_per_second": result.images_per_second,
    }
    if result.val_accuracy is not None:
        values["val/accuracy"] = result.val_accuracy
    return values
