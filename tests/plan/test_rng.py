"""Keyed random numbers: golden vectors, independence of keys, uniformity."""

import numpy as np

from fastdata.plan import rng


def test_golden_vectors() -> None:
    """The numbers are the same on every platform and version: these were computed once."""
    assert rng.key("order", "abc", 0, 1) == 3619279243401303281
    assert rng.bits(42, np.arange(3)).tolist() == [
        11547422037642081021,
        8275737699942218739,
        3177841854210711846,
    ]
    assert rng.uniform(42, np.array([7]), 2).tolist() == [[0.3464505405001438, 0.8949655979656831]]


def test_splitmix_reference() -> None:
    """The mixing function is SplitMix64's: its published first outputs from seed 1234567."""
    golden = 0x9E3779B97F4A7C15
    states = [(1234567 + golden * (i + 1)) % 2**64 for i in range(3)]

    words = rng.mix(np.array(states, np.uint64))

    assert words.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_key_distinguishes_tuples() -> None:
    """Tuples that concatenate or add up to the same still give different keys."""
    tuples: list[tuple[int | str, ...]] = [(0, 1), (1, 0), ("0", 1), (0, 1, ""), ("01",), (1, 1)]

    keys = {rng.key(*parts) for parts in tuples}

    assert len(keys) == 6


def test_rows_do_not_depend_on_company() -> None:
    """A counter's draws are the same alone and among others."""
    together = rng.uniform(5, np.arange(100), 23)
    alone = rng.uniform(5, np.array([31]), 23)

    assert np.array_equal(together[31], alone[0])


def test_uniform_is_uniform() -> None:
    """Draws lie in [0, 1), fill it evenly, and are uncorrelated between counters and draws."""
    draws = rng.uniform(9, np.arange(20000), 4)
    counts, _ = np.histogram(draws, bins=64, range=(0, 1))
    expected = draws.size / 64

    assert draws.min() >= 0
    assert draws.max() < 1
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees: p = 1e-5
    assert np.abs(np.corrcoef(draws.T) - np.eye(4)).max() < 0.03
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.03
