"""The reference training run, from a data set to its figures; read ``train`` top to bottom."""

import math
import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from fastdata.errors import OptionError
from fastdata.loaders.loader import Loader
from fastdata.train import checkpoint as checkpoints
from fastdata.train import ranks
from fastdata.train.ceiling import ROUNDS, measure_ceiling
from fastdata.train.checkpoint import Checkpoints, Position
from fastdata.train.data import open_data
from fastdata.train.device import kernels, pick_device, seed_rank, seeded
from fastdata.train.evaluate import evaluate
from fastdata.train.loop import steps_in_epoch, train_epoch
from fastdata.train.meter import (
    PassMeter,
    UtilizationSampler,
    machine,
    now,
    peak_memory,
    reset_peak_memory,
)
from fastdata.train.models import build
from fastdata.train.progress import Progress, ProgressCallback
from fastdata.train.recipe import Recipe
from fastdata.train.results import Ceiling, EpochResult, TrainReport
from fastdata.train.schedule import rates
from fastdata.train.step import TrainStep
from fastdata.train.stop import Stop
from fastdata.train.watch import Watch

DEFAULT = Recipe()


def train(
    path: str | os.PathLike[str],
    recipe: Recipe = DEFAULT,
    *,
    val: str | os.PathLike[str] | None = None,
    network: nn.Module | None = None,
    device: str | torch.device | None = None,
    threads: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    profile: str | os.PathLike[str] | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
    timeout: float = 600.0,
    ceiling_seconds: float = 15.0,
    progress: ProgressCallback | None = None,
) -> TrainReport:
    """Train an image classifier from scratch, and measure it.

    The same data and recipe give the same weights to the bit on the same CPU, stopped and resumed
    or not. Under torchrun each process is a rank with its share of each step. torch's own random
    state is left as it was.

    Args:
        path: Training data: tar shards, an ``.lmdb`` file, or class folders of images.
        recipe: Every switch.
        val: Validation data with the same classes.
        network: A model of your own, from (N, 3, H, W) to (N, classes), in place of the recipe's;
            it is trained in place, and under several ranks must start with the same weights.
        device: Where to train; None takes CUDA where there is one, under torchrun the rank's GPU.
        threads: Decoding threads; None leaves a core or two to the step.
        checkpoint: File that is written after each epoch, and when Ctrl-C or SIGTERM ends the run.
        checkpoint_every: Steps between further checkpoints within an epoch.
        resume: Go on from ``checkpoint`` where it exists; then nothing but ``device``'s index,
            ``threads`` and what is measured may differ.
        profile: File for a profiler's trace of a few steps, for chrome://tracing or Perfetto.
        tensorboard: Folder for scalars.
        timeout: Seconds that a rank waits for the others before that is an error.
        ceiling_seconds: Time for measuring the share of the ceiling; 0 leaves it out.
        progress: Called after every step, on the first rank.

    Raises:
        OptionError: An argument is out of range or does not fit the data, the loss became
            infinite or NaN, or the device has too little memory.
        NotADatasetError: ``path`` or ``val`` holds no data set.
        CorruptError: One of them is damaged.
        DestinationError: ``checkpoint`` exists, and ``resume`` was not asked for, or it cannot be
            written.
        StateError: It is damaged, or of another run.
        RankError: Another rank ended, or does not answer.
        MissingExtraError: torchvision or TensorBoard is not installed.
    """
    _check(timeout=timeout, ceiling_seconds=ceiling_seconds)
    where = pick_device(device)

    with ExitStack() as stack:
        stack.enter_context(ranks.process_group(where, timeout))
        stack.enter_context(ranks.expected())
        stack.enter_context(kernels(recipe, where))
        stack.enter_context(seeded(recipe.seed, where))
        world = ranks.count()
        tell = progress if progress is not None and ranks.number() == 0 else lambda _: None
        resuming = checkpoint is not None and checkpoints.prepare(
            Path(checkpoint), every=checkpoint_every, resume=resume, device=where
        )

        # Data: batches arrive on the device, normalised, in the type of the forward pass.
        data, held_out = open_data(path, val, recipe, device=where, threads=threads, closing=stack)
        classes = data.source.classes

        # Model, optimiser, learning rates; then everything that happens only once.
        name = recipe.model if network is None else type(network).__name__
        if network is None:
            network = build(recipe.model, classes=len(classes), size=recipe.size)
        step = TrainStep.of(recipe, network, where)
        steps = recipe.epochs * steps_in_epoch(data, recipe)
        peak = recipe.peak_lr(world)
        rate = rates(recipe.schedule, steps=steps, peak=peak, rise=recipe.rise)
        tell(Progress("warm-up", 0, 0, 1))
        started = now(where)
        step.warm_up(recipe.batch_size, recipe.size, classes=len(classes))
        warmup_seconds = now(where) - started
        seed_rank(recipe.seed, ranks.number())

        # Where an earlier run stopped, if there was one.
        at = Position(PassMeter(where))
        saved = None
        if checkpoint is not None:
            run = checkpoints.identity(recipe, name, data.source, where)
            saved = Checkpoints(
                Path(checkpoint), every=checkpoint_every, run=run, step=step, data=data
            )
            if resuming:
                saved.restore(at)

        # Training, and after each pass exact accuracy on what the model has not seen.
        watch = stack.enter_context(
            Watch(
                profile=None if profile is None else Path(profile),
                tensorboard=None if tensorboard is None else Path(tensorboard),
                device=where,
                steps=steps - at.step,
            )
        )
        stop = Stop() if saved is None else stack.enter_context(Stop())
        reset_peak_memory(where)
        gpu = UtilizationSampler(where)
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
            watch.scalars(at.step, scalars(result))
            at.finish_epoch(result, PassMeter(where))
            if saved is not None:
                saved.write(at)
                if stop.wished(where):
                    stop.obey()
        peak_bytes = peak_memory(where)

        # The headline, on a copy of the state.
        share = _ceiling(step, data, ceiling_seconds, tell) if ceiling_seconds else None

        return TrainReport(
            path=os.fspath(path),
            val=None if val is None else os.fspath(val),
            samples=len(data.source),
            val_samples=0 if held_out is None else len(held_out.source),
            classes=len(classes),
            model=name,
            parameters=sum(p.numel() for p in network.parameters()),
            recipe=recipe,
            world_size=world,
            lr=peak,
            device=str(where),
            epochs=tuple(at.epochs),
            images_per_second=typical_speed(at.epochs),
            warmup_seconds=warmup_seconds,
            ceiling=share,
            gpu_utilization=gpu.mean(),
            peak_memory_bytes=peak_bytes,
            machine=machine(where),
        )


def _ceiling(step: TrainStep, data: Loader, seconds: float, tell: ProgressCallback) -> Ceiling:
    """The share of the ceiling, round by round."""

    def progress(done: int) -> None:
        tell(Progress("ceiling", 0, done, ROUNDS))

    return measure_ceiling(step, data, seconds=seconds, progress=progress)


def typical_speed(results: Sequence[EpochResult]) -> float:
    """Median images a second of the epochs after the first; of the only one if there is one."""
    return statistics.median(result.images_per_second for result in (results[1:] or results))


def scalars(result: EpochResult) -> dict[str, float]:
    """An epoch's figures by their names in TensorBoard."""
    values = {
        "train/accuracy": result.train_accuracy,
        "train/images_per_second": result.images_per_second,
    }
    if result.val_accuracy is not None:
        values["val/accuracy"] = result.val_accuracy
    return values


def _check(*, timeout: float, ceiling_seconds: float) -> None:
    """Arguments that nothing else checks."""
    if not 0 < timeout < math.inf:
        raise OptionError(f"timeout must be a positive number of seconds, not {timeout}")
    if not 0 <= ceiling_seconds < math.inf:
        raise OptionError(f"ceiling_seconds must be 0 or more, not {ceiling_seconds}")
