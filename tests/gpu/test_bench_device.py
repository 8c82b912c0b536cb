"""The benchmarks on a CUDA device: every rung, and the loader spinning on a stream of its own."""

from pathlib import Path

import pytest
import torch

from fastdata.bench import LadderSettings, bench_ceiling, ladder
from fastdata.bench.measure import StepClock
from fastdata.train.recipe import Recipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def test_no_rung_is_left_out(folder: Path, tmp_path: Path) -> None:
    """On CUDA every rung has its figures, device memory among them."""
    settings = LadderSettings(size=64, batch_size=8, workers=2, steps=5, device="cuda")
    report = ladder(folder, settings, work=tmp_path / "work")

    assert [item.left_out for item in report.rungs] == [""] * 11
    for item in report.rungs:
        assert item.figures is not None
        assert min(item.figures.step_seconds) > 0
        assert item.figures.peak_memory_bytes > 1 << 20


def test_ceiling_with_the_loader_spinning(shards: Path) -> None:
    """Real, resident and spinning runs work on CUDA in bf16, and leave nothing in error."""
    recipe = Recipe(size=64, batch_size=8, amp="bf16", channels_last=True)
    report = bench_ceiling(shards, recipe, device="cuda", threads=2, seconds=5.0)
    torch.cuda.synchronize()

    assert all(min(r.real, r.resident, r.spinning or 0) > 0 for r in report.ceiling.rounds)


def test_clock_does_not_wait() -> None:
    """A step that the device has not made yet is marked at once; its time is the device's."""
    clock = StepClock(torch.device("cuda", 0))
    clock.mark()
    torch.cuda._sleep(50_000_000)  # clock cycles: tens of milliseconds
    clock.mark()
    torch.cuda.synchronize()

    assert clock.durations()[0] > 0.005
