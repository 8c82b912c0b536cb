"""Learning rates against torch's own schedulers."""

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
)

from fastdata.train.optimizer import cosine, one_cycle, rates
from fastdata.train.recipe import Recipe


def _optimizer(lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def _torch_rates(
    optimizer: torch.optim.Optimizer, scheduler: LRScheduler, steps: int
) -> list[float]:
    """Rates of the oracle, one a step."""
    found = [float(optimizer.param_groups[0]["lr"])]
    for _ in range(steps - 1):
        optimizer.step()
        scheduler.step()
        found.append(float(optimizer.param_groups[0]["lr"]))
    return found


@pytest.mark.parametrize("rise", [0.15, 0.3, 0.55])
@pytest.mark.parametrize("steps", [2, 3, 10, 99, 1000])
def test_one_cycle_is_torchs(steps: int, rise: float) -> None:
    """Every step has the rate that OneCycleLR with its defaults gives it."""
    optimizer = _optimizer(0.1)
    scheduler = OneCycleLR(
        optimizer, max_lr=0.3, total_steps=steps, pct_start=rise, cycle_momentum=False
    )
    expected = _torch_rates(optimizer, scheduler, steps)

    found = [one_cycle(step, steps=steps, peak=0.3, rise=rise) for step in range(steps)]

    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (10, 0), (10, 3), (500, 25)])
def test_cosine_is_torchs(steps: int, warmup: int) -> None:
    """Every step has the rate of LinearLR followed by CosineAnnealingLR."""
    optimizer = _optimizer(0.3)
    up = LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
    down = CosineAnnealingLR(optimizer, T_max=steps - warmup)
    both = SequentialLR(optimizer, [up, down], milestones=[warmup]) if warmup else down
    expected = _torch_rates(optimizer, both, steps)

    found = [cosine(step, steps=steps, peak=0.3, warmup=warmup) for step in range(steps)]

    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["onecycle", "cosine"])
@pytest.mark.parametrize("steps", [1, 2, 19, 20, 1000])
@pytest.mark.parametrize("rise", [0.0, 0.05, 0.1, 0.5, 0.99])
def test_rates_stay_between_zero_and_the_peak(name: str, steps: int, rise: float) -> None:
    """Whatever the number of steps, each rate is over zero and at most the peak."""
    rate = rates(Recipe(schedule=name, warmup=rise), steps=steps, peak=0.5)

    assert all(0 < rate(step) <= 0.5 for step in range(steps))
