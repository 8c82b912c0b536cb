"""What goes wrong inside a step, in words that say what to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fastdata.errors import FastdataError, OptionError

_REASON = 400  # characters of another library's error that are passed on


@contextmanager
def memory_for(batch_size: int, size: int) -> Iterator[None]:
    """Explain a device that runs out of memory in a step.

    Raises:
        OptionError: It did.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OptionError(
            f"the device has too little memory for steps on {batch_size} images of {size}x{size} "
            "pixels; take a smaller batch_size (accumulate keeps the step's size), amp, or "
            f"checkpointing: {_short(error)}"
        ) from error


@contextmanager
def fitting(module: nn.Module, batch_size: int, size: int) -> Iterator[None]:
    """Explain a model that cannot take a batch.

    Raises:
        OptionError: It could not; the model and the shape are named.
    """
    try:
        with memory_for(batch_size, size):
            yield
    except FastdataError:
        raise
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise OptionError(
            f"{type(module).__name__} cannot train on batches of {batch_size} images of "
            f"{size}x{size} pixels: {_short(error)}; choose another model, size or batch size"
        ) from error


def check_scores(module: nn.Module, scores: torch.Tensor, classes: int) -> None:
    """A model gives a score for each class.

    Raises:
        OptionError: Its (N, ...) scores are others.
    """
    if scores.shape[1:] != (classes,):
        raise OptionError(
            f"{type(module).__name__} gives {'x'.join(map(str, scores.shape[1:]))} scores an "
            f"image, the data has {classes} classes; give its last layer {classes} outputs"
        )


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_REASON]  # the compiler's run to pages
