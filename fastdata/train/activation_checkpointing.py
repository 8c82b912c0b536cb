"""Activation checkpointing of a model's blocks."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from fastdata.errors import OptionError


def checkpoint_blocks(model: nn.Module) -> None:
    """Let each block of a model recompute its activations in the backward pass.

    Blocks are the outermost composite parts of a model's sequences, such as the bottlenecks of a
    ResNet and the layers of a transformer. Their weights keep their names. Gradients are the same
    to the bit, dropout included, and batch statistics count each batch once.

    Raises:
        OptionError: The model has no such blocks.
    """
    blocks = list(_blocks(model))
    if not blocks:
        raise OptionError(
            f"{type(model).__name__} has no blocks to checkpoint; leave checkpointing off"
        )
    for block in blocks:
        forward = partial(
            checkpoint, block.forward, use_reentrant=False, context_fn=partial(_contexts, block)
        )
        block.forward = forward


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost composite parts of the sequences in a module."""
    in_sequence = isinstance(module, nn.Sequential | nn.ModuleList)
    for child in module.children():
        is_sequence = isinstance(child, nn.Sequential | nn.ModuleList)
        if in_sequence and not is_sequence and next(child.children(), None) is not None:
            yield child
        else:
            yield from _blocks(child)


def _contexts(
    block: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a block's forward pass, and of its recomputation."""
    return nullcontext(), _without_statistics(block)


@contextmanager
def _without_statistics(block: nn.Module) -> Iterator[None]:
    """Keep batch normalisation from counting a batch a second time.

    Its other ways to leave the statistics unchanged save fewer tensors for the backward pass, which
    ``checkpoint`` reports as an error.
    """
    norms = [m for m in block.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, count
