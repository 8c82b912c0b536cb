"""The ranks of a run: joining the process group, exchanging tensors, and losing one of them."""

import atexit
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from fastdata.errors import RankError
from fastdata.train.explain_errors import shortened


@contextmanager
def process_group(device: torch.device, timeout: float) -> Iterator[None]:
    """Join the process group that torchrun describes in the environment, if it does.

    NCCL connects GPUs, gloo CPUs. The group lasts until the process ends or an error is raised: a
    second group at the same address could meet the remains of the first. A group that was joined
    before, by the caller perhaps, is used as it is.

    Args:
        device: This rank's device.
        timeout: Seconds that a rank waits for the others.

    Raises:
        RankError: The ranks do not find each other in time.
    """
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield
        return
    on_gpu = device.type == "cuda"
    # With a device id, NCCL connects at once, so that a missing rank is noticed here.
    try:
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            timeout=timedelta(seconds=timeout),
            device_id=device if on_gpu else None,
        )
    except (RuntimeError, ValueError) as error:
        raise RankError(f"the ranks did not find each other: {shortened(error)}") from error
    atexit.register(_leave)
    try:
        yield
    except BaseException:
        _leave()
        raise


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def world_size() -> int:
    """Number of ranks; 1 outside torch.distributed."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Rank of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def all_sum(values: torch.Tensor) -> torch.Tensor:
    """Sum a tensor over all ranks, in place."""
    if world_size() > 1:
        dist.all_reduce(values)
    return values


def broadcast(tensors: Iterable[torch.Tensor]) -> None:
    """Overwrite these tensors on all ranks with the first rank's."""
    if world_size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, 0)


def gather(values: torch.Tensor) -> torch.Tensor:
    """Stack tensors of one shape from all ranks, in rank order, on every rank."""
    parts = [torch.empty_like(values) for _ in range(world_size())]
    if world_size() > 1:
        dist.all_gather(parts, values)
    else:
        parts[0].copy_(values)
    return torch.stack(parts)


def barrier(device: torch.device) -> None:
    """Wait until all ranks have called this."""
    all_sum(torch.zeros(1, device=device)).item()


@contextmanager
def explain_lost_ranks() -> Iterator[None]:
    """Turn what torch raises when it loses another rank into an error that says so.

    Raises:
        RankError: A rank ended, or did not answer within the timeout.
    """
    try:
        yield
    except RuntimeError as error:
        # gloo's errors have no class of their own; their texts name its source or its socket
        text = str(error)
        gone = "gloo" in text or "Connection closed" in text or "Connection reset" in text
        if (
            world_size() == 1
            or isinstance(error, RankError)
            or not (gone or isinstance(error, dist.DistError))
        ):
            raise
        raise RankError(
            f"rank {rank()} of {world_size()}: another rank ended or does not answer; its own "
            "output says why. Training can be resumed from the last checkpoint. "
            f"({shortened(error)})"
        ) from error
