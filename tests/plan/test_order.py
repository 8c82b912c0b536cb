"""The epoch's order: a permutation, uniform, the same everywhere."""

import numpy as np
import pytest

from fastdata.plan import rng


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1023, 1024, 1025, 2048, 4097, 65536, 100_003])
def test_is_a_permutation(n: int) -> None:
    """Each id comes exactly once."""
    ids = rng.permutation(np.arange(n), n, rng.key(n))

    assert np.array_equal(np.sort(ids), np.arange(n))


@pytest.mark.parametrize("n", [10, 5000])
def test_position_alone_decides(n: int) -> None:
    """Asking for some positions gives what asking for all gives there."""
    whole = rng.permutation(np.arange(n), n, 3)
    some = rng.permutation(np.array([7, 2, 2, n - 1]), n, 3)

    assert np.array_equal(some, whole[[7, 2, 2, n - 1]])


def test_five_billion() -> None:
    """Positions of a set that no machine could list map to distinct ids within it."""
    n = 5_000_000_000
    ids = rng.permutation(np.arange(0, n, n // 1000), n, 1)

    assert ids.min() >= 0
    assert ids.max() < n
    assert len(np.unique(ids)) == len(ids)
    assert ids.max() > 0.98 * n


def test_golden_vectors() -> None:
    """The order is the same on every platform and version: these were computed once."""
    key = rng.epoch_key("fingerprint", 0, 0)

    assert rng.permutation(np.arange(5), 10, key).tolist() == [0, 7, 3, 2, 4]
    assert rng.permutation(np.arange(5), 1_000_000, key).tolist() == [
        97049,
        816367,
        730804,
        308109,
        988127,
    ]
    assert rng.permutation(np.arange(3), 5_000_000_000, key).tolist() == [
        3326307790,
        1675268590,
        3700953857,
    ]


def test_epochs_and_seeds_differ() -> None:
    """Seed 0 in epoch 1 has nothing to do with seed 1 in epoch 0."""
    orders = [
        rng.permutation(np.arange(50), 2000, rng.epoch_key("f", seed, epoch)).tolist()
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 1)]
    ]

    assert len({tuple(o) for o in orders}) == 4


@pytest.mark.parametrize("n", [3, 1100])
def test_uniform_over_keys(n: int) -> None:
    """Over many keys each id is equally likely in front, and each distance to the next one."""
    tries = 8_000
    pairs = np.array([rng.permutation(np.arange(2), n, rng.key(k)) for k in range(tries)])
    first = np.bincount(pairs[:, 0], minlength=n)
    gap = np.bincount((pairs[:, 1] - pairs[:, 0]) % n, minlength=n)[1:]

    for counts in (first, gap):
        expected = tries / len(counts)
        chi2 = ((counts - expected) ** 2 / expected).sum()
        spread = np.sqrt(2 * (len(counts) - 1))
        assert chi2 < len(counts) - 1 + 6 * spread


def test_position_outside() -> None:
    """A position outside the data set is an error, not a wrong id."""
    with pytest.raises(IndexError, match=r"\[0, 10\)"):
        rng.permutation(np.array([10]), 10, 0)
