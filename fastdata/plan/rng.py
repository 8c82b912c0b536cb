"""Random numbers and orders as pure functions of a key and a counter.

Order, crops and flips must not depend on threads, ranks, platforms or library versions, so they
are not drawn from a generator with state (numpy's streams may change between versions, NEP 19).
Everything here is 64-bit integer arithmetic on arrays; tests hold golden vectors.

The order of an epoch is computed, not stored. The sample at a position costs the same to find for
500 samples as for 5 billion and needs no list of them, so any rank, worker or resumed process finds
its place by itself. There are two orders: :func:`permutation` mixes all samples; :func:`windows`
reads nearly sequentially, for spinning disks and object stores: blocks of consecutive samples come
in random order, ``BLOCKS`` of them make a window, and within a window samples come in random order.
So a reader needs one window at a time, in long consecutive pieces, and yet a batch holds samples of
many blocks.
"""

import hashlib

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

BLOCK = 256
"""Consecutive samples that the window order reads together: 28 MB of ImageNet photographs."""
BLOCKS = 32
"""Blocks in a window."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 8
# Below this the halves of a Feistel network have under six bits and too few permutations are
# within reach; sorting so few random words costs no more and is exactly uniform.
_SORTED = 1024


def key(*parts: int | str) -> int:
    """A 64-bit key from a tuple, for example ``key("order", fingerprint, seed, epoch)``.

    Tuples that differ in any place give unrelated keys: unlike with ``seed + epoch``, (0, 1) and
    (1, 0) have nothing in common.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def mix(x: U64) -> U64:
    """A bijection of 64-bit words in which each input bit flips half of the output bits.

    The output function of SplitMix64 (Steele, Lea, Flood 2014, with Stafford's constants 13).
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def bits(key: int, counters: npt.NDArray[np.int64] | U64) -> U64:
    """One random 64-bit word for each counter, of the counters' shape."""
    base = mix(np.full(1, key, np.uint64))
    return mix(mix(counters.astype(np.uint64) + _GOLDEN) + base)


def uniform(key: int, counters: npt.NDArray[np.int64], draws: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), shape (N, draws): a row of independent draws for each counter."""
    steps = np.arange(1, draws + 1, dtype=np.uint64) * _GOLDEN  # (draws,)
    words = mix(bits(key, counters)[:, None] + steps)  # (N, draws)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64)


def epoch_key(fingerprint: str, seed: int, epoch: int) -> int:
    """Key of one epoch's order over the data set with this fingerprint."""
    return key("order", fingerprint, seed, epoch)


def permutation(positions: I64, n: int, key: int) -> I64:
    """Ids at the given positions of the permutation of ``range(n)`` that belongs to the key.

    A Feistel network over the smallest power of two that holds n, with cycle walking: positions
    that land outside are sent through again (Black and Rogaway 2002), fewer than two rounds on
    average.

    Args:
        positions: (N,) positions, each in [0, n).
        n: Number of samples.
        key: As made by :func:`epoch_key`.

    Returns:
        (N,) int64 ids; over all positions each id comes exactly once.

    Raises:
        IndexError: A position lies outside [0, n).
    """
    _check_positions(positions, n)
    if n <= _SORTED:
        words = bits(key, np.arange(n, dtype=np.int64))
        return np.argsort(words, kind="stable").astype(np.int64)[positions]
    ids = _feistel(positions.astype(np.uint64), n, key)
    outside = np.flatnonzero(ids >= n)
    while outside.size:
        ids[outside] = _feistel(ids[outside], n, key)
        outside = outside[ids[outside] >= n]
    return ids.astype(np.int64)


def windows(positions: I64, n: int, order: int) -> I64:
    """Ids at the given positions of the window order of ``range(n)`` that belongs to a key.

    Arguments, result and error are those of :func:`permutation`; ``order`` is the key.
    """
    _check_positions(positions, n)
    blocks, rest = divmod(n, BLOCK)
    size = BLOCK * BLOCKS
    windows = max(1, -(-blocks // BLOCKS))
    # samples that do not fill a block join one of the windows, which is that much longer
    longer = key("longer", order) % windows
    after = positions >= longer * size + min(size, (blocks - longer * BLOCKS) * BLOCK) + rest
    numbers = np.minimum((positions - rest * after) // size, windows - 1)
    numbers = np.where((positions >= longer * size) & ~after, longer, numbers)
    ids = np.empty_like(positions)
    for number in np.unique(numbers).tolist():
        mine = numbers == number
        start = number * size + (rest if number > longer else 0)
        whole = min(BLOCKS, blocks - number * BLOCKS) * BLOCK
        length = whole + (rest if number == longer else 0)
        local = permutation(positions[mine] - start, length, key("window", order, number))
        places, offsets = np.divmod(local, BLOCK)
        inside = local < whole
        block = np.full_like(local, blocks)  # the rest follows the last block
        if inside.any():
            block[inside] = permutation(
                number * BLOCKS + places[inside], blocks, key("blocks", order)
            )
        offsets = np.where(inside, offsets, local - whole)
        ids[mine] = block * BLOCK + offsets
    return ids


def _check_positions(positions: I64, n: int) -> None:
    if positions.size and (positions.min() < 0 or positions.max() >= n):
        raise IndexError(
            f"positions must lie in [0, {n}), found {positions.min()} to {positions.max()}"
        )


def _feistel(x: U64, n: int, key: int) -> U64:
    """A bijection of the words of (n - 1).bit_length() bits; the halves differ by at most a bit."""
    width = (n - 1).bit_length()
    low_bits = np.uint64(width // 2)
    low_mask = np.uint64((1 << (width // 2)) - 1)
    high_mask = np.uint64((1 << (width - width // 2)) - 1)
    keys = bits(key, np.arange(_ROUNDS, dtype=np.int64))
    high, low = x >> low_bits, x & low_mask
    for i in range(0, _ROUNDS, 2):
        high = high ^ (mix(low + keys[i]) & high_mask)
        low = low ^ (mix(high + keys[i + 1]) & low_mask)
    return (high << low_bits) | low
