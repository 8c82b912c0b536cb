"""Errors of a training step, explained: what happened, and which setting to change."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fastdata.errors import DivergedError, FastdataError, OptionError

_REASON = 400  # characters of another library's error that are passed on; the compiler's fill pages


@contextmanager
def explain_memory_errors(batch_size: int, size: int) -> Iterator[None]:
    """Turn a device's lack of memory in a step into an error that says what to change.

    Raises:
        OptionError: The device has too little memory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OptionError(
            f"the device has too little memory for steps on {batch_size} images of {size}x{size} "
            "pixels; use a smaller batch_size (accumulate keeps the step's size), amp, or "
            f"checkpointing: {shortened(error)}"
        ) from error


@contextmanager
def explain_model_errors(module: nn.Module, batch_size: int, size: int) -> Iterator[None]:
    """Turn what a model raises on a batch into an error that names both.

    Raises:
        OptionError: The model cannot train on such batches, or the device has too little memory.
    """
    try:
        with explain_memory_errors(batch_size, size):
            yield
    except FastdataError:
        raise
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise OptionError(
            f"{type(module).__name__} cannot train on batches of {batch_size} images of "
            f"{size}x{size} pixels: {shortened(error)}; choose another model, size or batch size"
        ) from error


def check_scores(module: nn.Module, scores: torch.Tensor, classes: int) -> None:
    """Check that a model gives one score for each class.

    Raises:
        OptionError: Its scores have another shape than (N, ``classes``).
    """
    if scores.shape[1:] != (classes,):
        raise OptionError(
            f"{type(module).__name__} gives {'x'.join(map(str, scores.shape[1:]))} scores an "
            f"image, the data has {classes} classes; give its last layer {classes} outputs"
        )


def check_loss(loss: float, *, epoch: int, steps: int, lr: float) -> float:
    """Return a loss that is finite.

    Raises:
        DivergedError: It is infinite or NaN.
    """
    if not math.isfinite(loss):
        raise DivergedError(
            f"the loss became {loss} within the first {steps} steps of epoch {epoch} "
            f"(learning rate {lr:g}); train with a lower lr, or with amp off"
        )
    return loss


def shortened(error: Exception) -> str:
    """Another library's error in one line of bearable length."""
    return " ".join(str(error).split())[:_REASON]
