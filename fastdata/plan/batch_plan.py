"""Which positions of the epoch's order make up a batch of a rank: pure arithmetic."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdata.errors import OptionError


@dataclass(frozen=True)
class BatchPlan:
    """The batches of one rank in an epoch.

    Global batch k covers the positions from k * B * W on (B = ``batch_size``, W = ``world_size``),
    and rank r takes every W-th of them:

        positions     0 1 2 3 4 5 6 7 8 9        B = 2, W = 2
        global batch  0 0 0 0 1 1 1 1 2 2
        rank          0 1 0 1 0 1 0 1 0 1

    so that the global order does not depend on the world size and all ranks have equally many
    batches of equal size. With ``drop_last`` an incomplete global batch is left out. Without it
    each rank gets ceil(rest / W) places of it; places beyond the last sample repeat the first
    samples and are marked invalid. A single rank is never padded. The rest of an epoch that was
    interrupted is planned from its first position on, ``start``, in the same way.

    Attributes:
        samples: Samples in the epoch.
        batch_size: Samples in a batch of one rank.
        drop_last: Leave out the incomplete global batch.
        rank: This rank, from 0.
        world_size: Number of ranks.
        start: First position; those before it were handed out already.

    Raises:
        OptionError: A number is out of range, or no batch is left.
    """

    samples: int
    batch_size: int
    drop_last: bool
    rank: int = 0
    world_size: int = 1
    start: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.batch_size < 2**31:
            raise OptionError(f"batch_size must be from 1 to {2**31 - 1}, found {self.batch_size}")
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise OptionError(
                f"rank must lie in [0, world_size), found rank {self.rank} of {self.world_size}"
            )
        if not 0 <= self.start <= self.samples:
            raise OptionError(f"start must lie in [0, {self.samples}], found {self.start}")
        if self.start == 0 and len(self) == 0:
            ranks = f" on each of {self.world_size} ranks" if self.world_size > 1 else ""
            raise OptionError(
                f"{self.samples} samples make no batch of {self.batch_size}{ranks}; "
                "lower batch_size or set drop_last=False"
            )

    @property
    def global_batch(self) -> int:
        """Samples in a global batch."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Batches of this rank, the same on every rank."""
        whole, rest = divmod(self.samples - self.start, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)

    def positions(self, index: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Positions of batch ``index`` and which of them are valid, both of shape (N,)."""
        start = self.start + index * self.global_batch
        rest = min(self.samples - start, self.global_batch)
        places = -(-rest // self.world_size)
        positions = start + self.rank + self.world_size * np.arange(places, dtype=np.int64)  # (N,)
        return positions % self.samples, positions < self.samples

    def end(self, index: int) -> int:
        """Position behind batch ``index`` of all ranks."""
        return min(self.start + (index + 1) * self.global_batch, self.samples)
