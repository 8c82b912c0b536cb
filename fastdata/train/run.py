"""The reference training run, from a data set to its figures; read ``train`` top to bottom."""

import math
import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from fastdata.crop import CenterCrop, RandomResizedCrop
from fastdata.errors import OptionError
from fastdata.loaders.loader import Loader
from fastdata.train.ceiling import ROUNDS, measure_ceiling
from fastdata.train.checks import check_labelled, check_same_classes
from fastdata.train.device import pick_device, seeded
from fastdata.train.evaluate import evaluate
from fastdata.train.meter import (
    PassMeter,
    UtilizationSampler,
    machine,
    now,
    peak_memory,
    reset_peak_memory,
)
from fastdata.train.models import build
from fastdata.train.results import EpochResult, TrainReport
from fastdata.train.schedule import Schedule, rates
from fastdata.train.step import TrainStep, amp_dtype

BASE_LR = 0.1  # for 256 images a step, scaled linearly (Goyal et al. 2017)

_READ_EVERY = 50  # steps between readings of the loss: each one makes the host wait for the device


class Progress(NamedTuple):
    """Where a run is.

    Attributes:
        phase: ``"warm-up"``, ``"train"``, ``"validate"`` or ``"ceiling"``.
        epoch: From 0.
        done: Steps done in this epoch, or rounds of the ceiling.
        total: Steps of this epoch, or rounds.
        loss: Mean loss of the epoch as it was last read; None before.
    """

    phase: str
    epoch: int
    done: int
    total: int
    loss: float | None = None


ProgressCallback = Callable[[Progress], None]


def train(
    path: str | os.PathLike[str],
    *,
    val: str | os.PathLike[str] | None = None,
    model: str = "resnet18",
    size: int = 224,
    epochs: int = 1,
    batch_size: int = 64,
    lr: float | None = None,
    amp: str = "off",
    compile: bool = False,
    channels_last: bool = False,
    schedule: str = "onecycle",
    device: str | torch.device | None = None,
    seed: int = 0,
    threads: int | None = None,
    ceiling_seconds: float = 15.0,
    progress: ProgressCallback | None = None,
) -> TrainReport:
    """Train one of torchvision's classifiers from scratch on one device, and measure it.

    The same arguments give the same weights to the bit on the same CPU. torch's own random state
    is left as it was.

    Args:
        path: Training data: tar shards, an ``.lmdb`` file, or class folders of images.
        val: Validation data with the same classes.
        model: torchvision's name of the model.
        size: Side of the training crops in pixels; validation crops the centre of images scaled
            to 256/224 of it.
        epochs: Passes over the training data.
        batch_size: Images a step. Each pass leaves out the last incomplete batch.
        lr: Highest learning rate; None means 0.1 for 256 images a step, in proportion.
        amp: ``"off"``, ``"bf16"``, or ``"fp16"`` with loss scaling (CUDA only).
        compile: Use ``torch.compile``; the time it takes stays out of the figures.
        channels_last: Lay out weights and activations channels last.
        schedule: ``"onecycle"``, or ``"cosine"`` with a short linear warm-up.
        device: Where to train; None means CUDA where there is one, else the CPU.
        seed: Keys the first weights, the order, crops and flips.
        threads: Decoding threads; None leaves one or two cores to the step.
        ceiling_seconds: Time for measuring the share of the ceiling; 0 leaves it out.
        progress: Called after every step.

    Raises:
        OptionError: An argument is out of range or does not fit the data, or the loss became
            infinite or NaN.
        NotADatasetError: ``path`` or ``val`` holds no data set.
        CorruptError: One of them is damaged.
        MissingExtraError: torchvision is not installed.
    """
    _check(epochs=epochs, lr=lr, ceiling_seconds=ceiling_seconds)
    tell = progress or (lambda _: None)
    where = pick_device(device)
    dtype = amp_dtype(amp, where)
    peak = BASE_LR * batch_size / 256 if lr is None else lr

    with ExitStack() as stack:
        stack.enter_context(seeded(seed, where))

        # Data: batches arrive on the device, normalised, in the type of the forward pass.
        load = partial(Loader, device=where, dtype=dtype or torch.float32, threads=threads)
        cut = RandomResizedCrop(size)
        data = stack.enter_context(load(path, batch_size, crop=cut, flip=0.5, seed=seed))
        check_labelled(data.source)
        held_out = None
        if val is not None:
            whole = CenterCrop(size, resize=round(size * 256 / 224))
            held_out = load(val, batch_size, crop=whole, shuffle=False, drop_last=False)
            stack.enter_context(held_out)
            check_same_classes(data.source, held_out.source)

        # Model, optimiser, learning rates; then everything that happens only once.
        network = build(model, classes=len(data.source.classes), size=size)
        step = TrainStep(
            network, device=where, dtype=dtype, compile=compile, channels_last=channels_last
        )
        rate = rates(schedule, steps=epochs * len(data), peak=peak)
        tell(Progress("warm-up", 0, 0, 1))
        started = now(where)
        step.warm_up(batch_size, size)
        warmup_seconds = now(where) - started

        # Training, and after each pass exact accuracy on what the model has not seen.
        reset_peak_memory(where)
        gpu = UtilizationSampler(where)
        results = []
        for epoch in range(epochs):
            with gpu:
                result = train_epoch(step, data, epoch=epoch, rate=rate, tell=tell)
            if held_out is not None:
                tell(Progress("validate", epoch, 0, len(held_out), result.loss))
                result = replace(result, val_accuracy=evaluate(step, held_out))
            results.append(result)
        peak_bytes = peak_memory(where)

        # The headline, on a copy of the state.
        share = None
        if ceiling_seconds > 0:
            share = measure_ceiling(
                step,
                data,
                seconds=ceiling_seconds,
                progress=lambda done: tell(Progress("ceiling", epochs, done, ROUNDS)),
            )

        return TrainReport(
            path=os.fspath(path),
            val=None if val is None else os.fspath(val),
            samples=len(data.source),
            val_samples=0 if held_out is None else len(held_out.source),
            classes=len(data.source.classes),
            model=model,
            parameters=sum(p.numel() for p in network.parameters()),
            size=size,
            batch_size=batch_size,
            amp=amp,
            compile=compile,
            channels_last=channels_last,
            schedule=schedule,
            seed=seed,
            lr=peak,
            device=str(where),
            epochs=tuple(results),
            images_per_second=typical_speed(results),
            warmup_seconds=warmup_seconds,
            ceiling=share,
            gpu_utilization=gpu.mean(),
            peak_memory_bytes=peak_bytes,
            machine=machine(where),
        )


def train_epoch(
    step: TrainStep,
    data: Loader,
    *,
    epoch: int,
    rate: Schedule,
    tell: ProgressCallback,
) -> EpochResult:
    """Train on one pass over ``data``.

    Raises:
        OptionError: The loss became infinite or NaN.
    """
    meter = PassMeter(step.device)
    first, steps, lr = epoch * len(data), len(data), 0.0
    loss = None
    started = now(step.device)
    for done, batch in enumerate(data, start=1):
        lr = rate(first + done - 1)
        meter.add(step(batch.images, batch.labels, lr), len(batch.labels))
        if done % _READ_EVERY == 0 or done == steps:  # the only waits for the device
            loss = _finite(meter.loss(), epoch=epoch, done=done, lr=lr)
        tell(Progress("train", epoch, done, steps, loss))
    seconds = now(step.device) - started
    return EpochResult(
        epoch=epoch,
        loss=meter.loss(),
        train_accuracy=meter.accuracy(),
        val_accuracy=None,
        images_per_second=meter.images / seconds,
        lr=lr,
    )


def typical_speed(results: Sequence[EpochResult]) -> float:
    """Median images a second of the epochs after the first; of the only one if there is one."""
    return statistics.median(result.images_per_second for result in (results[1:] or results))


def _finite(loss: float, *, epoch: int, done: int, lr: float) -> float:
    if not math.isfinite(loss):
        raise OptionError(
            f"the loss became {loss} within the first {done} steps of epoch {epoch} "
            f"(learning rate {lr:g}); train with a lower lr, or with amp off"
        )
    return loss


def _check(*, epochs: int, lr: float | None, ceiling_seconds: float) -> None:
    """Arguments that nothing else checks."""
    if epochs < 1:
        raise OptionError(f"epochs must be 1 or more, not {epochs}")
    if lr is not None and not 0 < lr < math.inf:
        raise OptionError(f"lr must be a positive number, not {lr}")
    if not 0 <= ceiling_seconds < math.inf:
        raise OptionError(f"ceiling_seconds must be 0 or more, not {ceiling_seconds}")
