"""Random numbers as pure functions of a key and a counter.

Order, crops and flips must not depend on threads, ranks, platforms or library versions, so they
are not drawn from a generator with state (numpy's streams may change between versions, NEP 19).
Everything here is 64-bit integer arithmetic on arrays; tests hold golden vectors.
"""

import hashlib

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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
