"""What an epoch draws: exact cover, copies told apart, weights kept, golden vectors."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fastdata.errors import OptionError
from fastdata.plan import rng
from fastdata.plan.epochs import Epochs, Stratum, augmentation_keys


def _all(epochs: Epochs, epoch: int = 0) -> tuple[list[int], list[int]]:
    ids, copies = epochs.draw(np.arange(len(epochs), dtype=np.int64), epoch)
    return ids.tolist(), copies.tolist()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    rounds=st.lists(st.integers(1, 90), min_size=3, max_size=3),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_draws_are_even_and_copies_differ(
    sizes: list[int], rounds: list[int], repeats: int, seed: int
) -> None:
    """Each stratum gives its draws exactly, and each of its samples as often as any other."""
    starts = np.cumsum([0, *sizes]).tolist()
    strata = tuple(
        Stratum(range(start, start + size), draws)
        for start, size, draws in zip(starts, sizes, rounds, strict=False)
    )
    ids, copies = _all(Epochs("f", strata, True, seed, repeats))

    for stratum in strata:
        counts = np.bincount(ids, minlength=starts[-1])[stratum.ids.start : stratum.ids.stop]  # type: ignore[union-attr]
        assert counts.sum() == stratum.draws * repeats
        assert counts.max() - counts.min() <= repeats
    assert len(set(zip(ids, copies, strict=True))) == len(ids)


def test_plain_epochs_are_the_permutation() -> None:
    """All samples once, in the order of ``rng.permutation``; unshuffled, as they are."""
    whole = (Stratum(range(3000), 3000),)
    positions = np.arange(3000, dtype=np.int64)

    ids, copies = Epochs("f", whole, True, 7).draw(positions, 2)
    expected = rng.permutation(positions, 3000, rng.epoch_key("f", 7, 2))

    assert np.array_equal(ids, expected)
    assert not copies.any()
    assert _all(Epochs("f", whole, False))[0] == list(range(3000))


def test_repeats_come_in_a_row() -> None:
    """Repeated augmentation keeps the copies of a sample together, so that one batch holds them."""
    ids, copies = _all(Epochs("f", (Stratum(range(5), 5),), True, 0, 3))

    assert copies == [0, 1, 2] * 5
    assert [ids[3 * i : 3 * i + 3] for i in range(5)] == [[ids[3 * i]] * 3 for i in range(5)]


def test_subsets_keep_to_their_ids() -> None:
    """A subset's epoch holds its ids and no other."""
    chosen = np.array([3, 17, 900], np.int64)

    assert sorted(_all(Epochs("f", (Stratum(chosen, 3),)))[0]) == [3, 17, 900]


def test_weights_are_kept() -> None:
    """Over many draws each sample comes as often as its weight says; a weight of 0 never."""
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    ids, copies = _all(Epochs("f", (Stratum(range(4), 80_000),), weights=weights))

    assert np.allclose(np.bincount(ids, minlength=4) / 80_000, weights / 8, atol=0.006)
    assert len(set(copies)) == len(copies)


@pytest.mark.parametrize("n", [1, 255, 256, 8191, 8192, 8193, 20_000])
def test_window_order_is_a_permutation(n: int) -> None:
    """Each sample once, whatever is left over beside whole blocks and windows."""
    for key in range(5):
        ids = rng.windows(np.arange(n, dtype=np.int64), n, key)
        assert np.array_equal(np.sort(ids), np.arange(n))


def test_window_order_reads_blocks() -> None:
    """A window touches no more blocks than it holds, so reading stays in long pieces."""
    n, size = 200_000, rng.BLOCK * rng.BLOCKS
    ids = rng.windows(np.arange(n, dtype=np.int64), n, 3)

    for start in range(0, n - size, size):
        assert len(np.unique(ids[start : start + size] // rng.BLOCK)) <= 2 * rng.BLOCKS + 1
    batch = ids[50_000:50_256] // rng.BLOCK
    assert len(np.unique(batch)) >= rng.BLOCKS - 2


def test_golden_draws() -> None:
    """The same numbers on every platform and with every version of Python and numpy."""
    positions = np.array([0, 1, 2, 4999], np.int64)
    window_ids = rng.windows(positions, 10_000, 42)
    mixed = Epochs("f", (Stratum(range(10), 20), Stratum(range(10, 13), 4)), True, 1)
    weighted = Epochs("f", (Stratum(range(4), 5000),), weights=np.array([0.1, 0.2, 0.3, 0.4]))

    assert window_ids.tolist() == GOLDEN["window"]
    assert mixed.draw(np.arange(6), 3)[0].tolist() == GOLDEN["mixed"]
    assert weighted.draw(positions, 3)[0].tolist() == GOLDEN["weighted"]
    keys = augmentation_keys(np.array([5, 5]), np.array([0, 1]))
    assert keys.tolist() == GOLDEN["keys"]
    assert mixed.choice == GOLDEN["choice"]


GOLDEN = {
    "window": [5956, 3749, 9097, 6978],
    "mixed": [5, 6, 4, 8, 12, 5],
    "weighted": [1, 0, 3, 3],
    "keys": [5, 6238072747940578784],
    "choice": "239b272ce8063496",
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "windows"}, "shuffle"),
        ({"shuffle": False, "weights": np.ones(3)}, "weights"),
        ({"weights": np.ones(2)}, "one for each of 3"),
        ({"weights": np.array([1.0, -1.0, 1.0])}, "not negative"),
        ({"weights": np.zeros(3)}, "not all zero"),
        ({"weights": np.array([1.0, np.nan, 1.0])}, "finite"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    """What cannot be drawn from is refused when the epochs are made."""
    with pytest.raises(OptionError, match=message):
        Epochs("f", (Stratum(range(3), 3),), **options)  # type: ignore[arg-type]
