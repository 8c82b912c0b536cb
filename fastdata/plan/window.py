"""An order that reads nearly sequentially: for spinning disks and object stores.

The data set is cut into blocks of consecutive samples. Blocks come in random order, ``BLOCKS`` of
them make a window, and within a window samples come in random order. So a reader needs one window
at a time, in long consecutive pieces, and yet a batch holds samples of many blocks. Like the full
permutation it is computed, not stored.
"""

import numpy as np
import numpy.typing as npt

from fastdata.plan import order, rng

I64 = npt.NDArray[np.int64]

BLOCK = 256
"""Consecutive samples that are read together: 28 MB of ImageNet photographs."""
BLOCKS = 32
"""Blocks in a window."""


def permutation(positions: I64, n: int, key: int) -> I64:
    """Ids at the given positions of an order of ``range(n)`` that mixes within windows.

    Args:
        positions: (N,) positions, each in [0, n).
        n: Number of samples.
        key: As made by :func:`fastdata.plan.order.epoch_key`.

    Returns:
        (N,) int64 ids; over all positions each id comes exactly once.

    Raises:
        IndexError: A position lies outside [0, n).
    """
    if positions.size and (positions.min() < 0 or positions.max() >= n):
        raise IndexError(
            f"positions must lie in [0, {n}), found {positions.min()} to {positions.max()}"
        )
    blocks, rest = divmod(n, BLOCK)
    size = BLOCK * BLOCKS
    windows = max(1, -(-blocks // BLOCKS))
    # what fills no block goes into one of the windows, which is that much longer
    longer = rng.key("longer", key) % windows
    behind = positions >= longer * size + min(size, (blocks - longer * BLOCKS) * BLOCK) + rest
    numbers = np.minimum((positions - rest * behind) // size, windows - 1)
    numbers = np.where((positions >= longer * size) & ~behind, longer, numbers)
    ids = np.empty_like(positions)
    for number in np.unique(numbers).tolist():
        mine = numbers == number
        start = number * size + (rest if number > longer else 0)
        whole = min(BLOCKS, blocks - number * BLOCKS) * BLOCK
        length = whole + (rest if number == longer else 0)
        local = order.permutation(positions[mine] - start, length, rng.key("window", key, number))
        places, offsets = np.divmod(local, BLOCK)
        inside = local < whole
        block = np.full_like(local, blocks)  # the rest stands behind the last block
        if inside.any():
            block[inside] = order.permutation(
                number * BLOCKS + places[inside], blocks, rng.key("blocks", key)
            )
        offsets = np.where(inside, offsets, local - whole)
        ids[mine] = block * BLOCK + offsets
    return ids
