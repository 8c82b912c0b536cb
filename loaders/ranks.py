"""Which rank this process is, and of how many."""

import torch.distributed

from fastdata.errors import OptionError


def rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The given rank and world size; without them torch.distributed's, else 0 of 1.

    Raises:
        OptionError: One is given without the other, or they do not fit.
    """
    if (rank is None) != (world_size is None):
        raise OptionError("rank and world_size go together; give both or neither")
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise OptionError(f"rank must lie in [0, world_size), found {rank} of {world_size}")
        return rank, world_size
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def check_same(made: tuple[int, int] | None) -> None:
    """Refuse to go on as another rank than torch.distributed has by now.

    Args:
        made: Rank and world size as torch.distributed had them before; None where they were given.

    Raises:
        OptionError: It was not initialised then: every rank would get all samples.
    """
    now = rank_and_world_size(None, None)
    if made is not None and now[1] > 1 and now != made:
        raise OptionError(
            f"this loader was made as rank {made[0]} of {made[1]}, and this process is rank "
            f"{now[0]} of {now[1]}: make it behind init_process_group (in Lightning, in "
            "train_dataloader), or give rank and world_size"
        )
