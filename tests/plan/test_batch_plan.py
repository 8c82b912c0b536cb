"""The batch planner: exact cover, equal ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.errors import OptionError
from fastdata.plan.epochs import BatchPlan


@given(
    samples=st.integers(1, 500),
    batch_size=st.integers(1, 70),
    world_size=st.integers(1, 16),
    drop_last=st.booleans(),
)
def test_ranks_cover_exactly(
    samples: int, batch_size: int, world_size: int, drop_last: bool
) -> None:
    """Ranks have equally many and equally large batches; valid places hold each position once."""
    whole, rest = divmod(samples, batch_size * world_size)
    if drop_last and whole == 0:
        with pytest.raises(OptionError):
            BatchPlan(samples, batch_size, drop_last, 0, world_size)
        return
    plans = [BatchPlan(samples, batch_size, drop_last, r, world_size) for r in range(world_size)]

    seen: list[int] = []
    for index in range(len(plans[0])):
        parts = [plan.positions(index) for plan in plans]
        assert len({len(positions) for positions, _ in parts}) == 1
        # strided parts of a global batch interleave to the global order
        valid = [p[v].tolist() for p, v in parts]
        interleaved = sorted(position for part in valid for position in part)
        assert interleaved == list(range(len(seen), len(seen) + len(interleaved)))
        seen += interleaved
    assert {len(plan) for plan in plans} == {whole + (rest > 0 and not drop_last)}
    assert seen == list(range(whole * batch_size * world_size if drop_last else samples))


def test_strided_parts() -> None:
    """Rank r takes every W-th position of each global batch, in order."""
    plan = BatchPlan(10, 2, False, rank=1, world_size=2)

    assert [plan.positions(k)[0].tolist() for k in range(3)] == [[1, 3], [5, 7], [9]]


def test_single_rank_is_never_padded() -> None:
    """On one rank the last batch holds the rest and nothing else."""
    positions, valid = BatchPlan(10, 4, False).positions(2)

    assert positions.tolist() == [8, 9]
    assert valid.all()


def test_padding_is_marked() -> None:
    """Places beyond the last sample repeat the first samples and are invalid."""
    positions, valid = BatchPlan(5, 2, False, rank=1, world_size=2).positions(1)

    assert positions.tolist() == [0]
    assert valid.tolist() == [False]
    assert np.array_equal(BatchPlan(5, 2, False, 0, 2).positions(1)[1], [True])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 0, False), "batch_size must be"),
        ((10, 2**31, False), "batch_size must be"),
        ((10, 2, False, 2, 2), "rank must lie"),
        ((10, 2, False, 0, 0), "rank must lie"),
        ((10, 11, True), "make no batch of 11"),
    ],
)
def test_bad_arguments(arguments: tuple[int, int, bool, int, int], message: str) -> None:
    """A plan that cannot be is refused when it is made."""
    with pytest.raises(OptionError, match=message):
        BatchPlan(*arguments)
