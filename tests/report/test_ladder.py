"""The ladder as a table and as a page."""

import io
from typing import Any

import pytest
from rich.console import Console

from fastdata.bench import Figures, LadderReport, RungResult, rungs
from fastdata.bench.render import render_ladder
from fastdata.report.ladder import ladder_page


def _figures(speed: float, **options: Any) -> Figures:
    values: dict[str, Any] = {
        "steps": 9, "step_seconds": (0.09, 0.1, 0.2), "images_per_second": speed,
        "resident_images_per_second": 2000.0, "share": speed / 2000, "gpu_utilization": None,
        "sm_activity": None, "tensor_activity": None, "cpu_share": 0.5,
        "peak_memory_bytes": 3 << 30, "warmup_seconds": 1.0,
    }  # fmt: skip
    return Figures(**(values | options))


def _made_up(**options: Any) -> LadderReport:
    results = [
        RungResult(rung, _figures(100.0 * (number + 1), **options))
        for number, rung in enumerate(rungs(batch_size=256, workers=14))
    ]
    results[2] = RungResult(results[2].rung, None, "no room")
    return LadderReport(
        path="[red]photos", folder="f", packed="p", work="w", samples=9, classes=2,
        model="resnet18", size=224, device="cuda:0", in_memory=False,
        machine={"cpu": "<b>fast"}, rungs=tuple(results),
    )  # fmt: skip


def _shown(report: LadderReport) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render_ladder(report))
    return console.export_text()


def test_table_fits_a_terminal() -> None:
    """80 columns hold every rung's name and figures, uncut, and say what was left out."""
    text = _shown(_made_up())

    for part in ("channels_last", "100 (90.0-200)", "1,100", "55.0%", "[red]photos", "3.00"):
        assert part in text
    assert "fused is 11.0 times as fast as plain" in text
    assert "left out: pinned: no room" in text
    assert "\u2026" not in text
    assert "read from storage" in text


def test_columns_of_a_gpu_come_with_their_figures() -> None:
    """The GPU's columns are there where it tells, and only there."""
    assert "GPU" not in _shown(_made_up())
    assert "SMs" in _shown(_made_up(gpu_utilization=0.98, sm_activity=0.7))
    assert "98%" in _shown(_made_up(gpu_utilization=0.98, sm_activity=0.7))


@pytest.mark.parametrize("busy", [None, 0.5])
def test_page_has_all_rungs(busy: float | None) -> None:
    """The page shows each rung, what it adds and what was left out; text is escaped."""
    page = ladder_page(_made_up(gpu_utilization=busy))

    for rung in rungs(batch_size=256, workers=14):
        assert rung.name in page
    assert page.count("<svg") == 2
    assert ("GPU busy" in page) == (busy is not None)
    assert "left out: pinned: no room" in page
    assert "&lt;b&gt;fast" in page
    assert "<b>fast" not in page
