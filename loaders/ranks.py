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
