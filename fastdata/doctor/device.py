"""Speeds of the stages after decoding: Python's part, the copy to the device, the model."""

import time
from collections.abc import Generator
from contextlib import closing

import torch

from fastdata.batch.batch import Batch
from fastdata.doctor.results import Copying, LoaderSpeed, ModelSpeed, Settings
from fastdata.loaders.loader import Loader
from fastdata.train.device import amp_dtype, kernels, seeded
from fastdata.train.meter import now
from fastdata.train.models import build
from fastdata.train.recipe import Recipe
from fastdata.train.step import TrainStep

_FEW = 8  # images of a first step on the CPU, to estimate the time of a whole one
_BURST = 8  # calls between readings of the clock, which wait for the device


def loader_speed(loader: Loader, *, seconds: float) -> LoaderSpeed:
    """Read batches for some seconds, and discard them.

    Raises:
        FastdataError: What the loader raises.
    """
    batches = _endless(loader)
    with closing(batches):
        next(batches)
        start, used = time.perf_counter(), time.thread_time()
        count = images = 0
        while time.perf_counter() - start < seconds or not count:
            images += len(next(batches).ids)
            count += 1
        used, took = time.thread_time() - used, time.perf_counter() - start
    return LoaderSpeed(images / took, used / count)


def copying_speed(settings: Settings, *, seconds: float) -> Copying | None:
    """Copy a batch from page-locked memory repeatedly; None on the CPU, where nothing is copied."""
    device = torch.device(settings.device)
    if device.type != "cuda":
        return None
    shape = (settings.batch_size, settings.size, settings.size, 3)
    host = torch.empty(shape, dtype=torch.uint8, pin_memory=True)  # as the loader's buffers are
    target = torch.empty(shape, dtype=torch.uint8, device=device)
    target.copy_(host, non_blocking=True)
    start, copies = now(device), 0
    while now(device) - start < seconds:
        for _ in range(_BURST):
            target.copy_(host, non_blocking=True)
        copies += _BURST
    rate = copies / (now(device) - start)
    return Copying(rate * settings.batch_size, rate * host.nbytes)


def model_speed(
    recipe: Recipe, classes: int, device: torch.device, *, seconds: float
) -> ModelSpeed:
    """Train on one batch of noise that stays on the device.

    Args:
        recipe: Model, batch size, and the switches of the step.
        classes: Number of outputs.
        device: Where to train.
        seconds: Time, besides the warm-up and compilation.

    Raises:
        MissingExtraError: torchvision is not installed.
        OptionError: There is no such model, or it cannot train on such batches.
    """
    with seeded(0, device), kernels(recipe, device):
        module = build(recipe.model, classes=classes, size=recipe.size)
        step = TrainStep(recipe, module, device)
        count = _affordable(step, recipe, seconds)
        step.warm_up(count, recipe.size)
        # Steps on a GPU are queued in bursts, or waiting for each would be part of its time.
        batch = _noise(step, recipe, count)
        burst = _BURST if device.type == "cuda" else 1
        start, steps = now(device), 0
        while now(device) - start < seconds or not steps:
            for _ in range(burst):
                step(*batch, lr=0.0)
            steps += burst
        return ModelSpeed(recipe.model, count, steps * count / (now(device) - start))


def _affordable(step: TrainStep, recipe: Recipe, seconds: float) -> int:
    """Images a step: the batch size, but on the CPU no more than half the time allows."""
    if step.device.type == "cuda" or recipe.compile:
        return recipe.batch_size
    few = min(recipe.batch_size, _FEW)
    step.warm_up(few, recipe.size)
    batch = _noise(step, recipe, few)
    start = now(step.device)
    step(*batch, lr=0.0)
    took = now(step.device) - start
    return min(recipe.batch_size, max(few, int(few * seconds / 2 / took)))


def _noise(step: TrainStep, recipe: Recipe, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of noise on the device."""
    images = torch.randn(count, 3, recipe.size, recipe.size, device=step.device)
    images = images.to(amp_dtype(recipe.amp, step.device), memory_format=torch.channels_last)
    return images, torch.zeros(count, dtype=torch.int64, device=step.device)


def _endless(loader: Loader) -> Generator[Batch]:
    while True:
        yield from loader
