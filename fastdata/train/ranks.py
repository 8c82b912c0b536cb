"""The ranks of a run: who they are, how they meet, and what becomes of them when one is gone."""

import atexit
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from fastdata.errors import RankError

_REASON = 400  # characters of another library's error that are passed on


@contextmanager
def process_group(device: torch.device, timeout: float) -> Iterator[None]:
    """Join the process group that torchrun describes in the environment, where it does.

    NCCL connects GPUs, gloo CPUs. The group lasts until the process ends, or an error does away
    with it: a second one at the same address could meet the remains of the first. One that was
    joined before, by the caller too, is taken as it is.

    Args:
        device: This rank's device.
        timeout: Seconds that a rank waits for the others before it gives up.

    Raises:
        RankError: The ranks do not find each other in time.
    """
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield
        return
    on_gpu = device.type == "cuda"
    try:
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            timeout=timedelta(seconds=timeout),
            device_id=device if on_gpu else None,
        )
    except (RuntimeError, ValueError) as error:
        raise RankError(f"the ranks did not find each other: {_short(error)}") from error
    atexit.register(_leave)
    try:
        yield
    except BaseException:
        _leave()
        raise


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def count() -> int:
    """How many ranks there are; 1 outside torch.distributed."""
    return dist.get_world_size() if dist.is_initialized() else 1


def number() -> int:
    """Which of them this process is, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def add_up(values: torch.Tensor) -> torch.Tensor:
    """Sum a tensor over all ranks, in place."""
    if count() > 1:
        dist.all_reduce(values)
    return values


def take_over(tensors: Iterable[torch.Tensor]) -> None:
    """Give all ranks the first one's values of these tensors."""
    if count() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, 0)


def gather(values: torch.Tensor) -> torch.Tensor:
    """Tensors of one shape from all ranks, stacked in the order of their numbers, on each rank."""
    parts = [torch.empty_like(values) for _ in range(count())]
    if count() > 1:
        dist.all_gather(parts, values)
    else:
        parts[0].copy_(values)
    return torch.stack(parts)


def meet(device: torch.device) -> None:
    """Wait until all ranks are here."""
    add_up(torch.zeros(1, device=device)).item()


@contextmanager
def expected() -> Iterator[None]:
    """Turn what torch raises when another rank is gone into an error that says so.

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
            count() == 1
            or isinstance(error, RankError)
            or not (gone or isinstance(error, dist.DistError))
        ):
            raise
        raise RankError(
            f"rank {number()} of {count()}: another rank ended or does not answer; its own output "
            f"says why. Training can be resumed from the last checkpoint. ({_short(error)})"
        ) from error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_REASON]
