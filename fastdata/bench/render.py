"""Benchmarks for the terminal."""

import statistics
from collections.abc import Callable, Mapping

from rich.table import Table
from rich.text import Text

from fastdata.bench.results import CeilingReport, Figures, LadderReport

_NONE = "-"
_WARM = 0.05  # share of bytes from storage

# Columns in which no rung has a figure are left out.
_COLUMNS: Mapping[str, Callable[[Figures], str]] = {
    "images/s": lambda f: f"{f.images_per_second:,.0f}",
    "ms a step": lambda f: _milliseconds(*f.step_seconds),
    "ceiling": lambda f: f"{f.share:.1%}",
    "GPU": lambda f: percent(f.gpu_utilization),
    "SMs": lambda f: percent(f.sm_activity),
    "tensor": lambda f: percent(f.tensor_activity),
    "cores": lambda f: percent(f.cpu_share),
    "GiB": lambda f: f"{f.peak_memory_bytes / 2**30:.2f}",
}


def ladder_columns(report: LadderReport) -> dict[str, list[str]]:
    """Cells by column, from the lowest measured rung to the highest."""
    measured = [(item.rung, item.figures) for item in report.rungs if item.figures is not None]
    columns = {
        "rung": [rung.name for rung, _ in measured],
        "batch": [str(rung.batch_size) for rung, _ in measured],
    }
    columns |= {name: [cell(f) for _, f in measured] for name, cell in _COLUMNS.items()}
    return {name: cells for name, cells in columns.items() if set(cells) != {_NONE}}


def render_ladder(report: LadderReport) -> Table:
    """Rich table: a row for each rung, from the lowest to the highest."""
    # Text, because a path may hold the brackets of rich's markup
    title = Text(f"{report.model} on {report.path}, {report.size} px, {report.device}")
    caption = Text("\n".join(notes(report)))
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.box, table.pad_edge, table.padding = None, False, (0, 1, 0, 0)
    columns = ladder_columns(report)
    for name in columns:
        table.add_column(name, justify="left" if name == "rung" else "right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def notes(report: LadderReport) -> list[str]:
    """What the table does not show: the gain, the rungs that were left out, and why."""
    lines = []
    speeds = [
        (item.rung.name, item.figures.images_per_second)
        for item in report.rungs
        if item.figures is not None
    ]
    if len(speeds) > 1:
        (bottom, slow), (top, fast) = speeds[0], speeds[-1]
        lines.append(f"{top} is {fast / slow:.1f} times as fast as {bottom}")
    lines += [f"left out: {row.rung.name}: {row.left_out}" for row in report.rungs if row.left_out]
    if not report.in_memory:
        lines.append("the files do not fit into memory: they were read from storage")
    return lines


def render_ceiling(report: CeilingReport) -> Table:
    """Rich table: real, spinning and resident speed with their spread, and the shares."""
    title = Text(f"{report.model} on {report.path}, {report.size} px, {report.device}")
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("remark")
    for name, figure, remark in ceiling_rows(report):
        table.add_row(name, figure, Text(remark))
    return table


def ceiling_rows(report: CeilingReport) -> list[tuple[str, str, str]]:
    """Rows of (name, figure, remark)."""
    found, cold = report.ceiling, report.cold
    resident, real = found.resident_images_per_second, found.real_images_per_second
    shares = [r.real / r.resident for r in found.rounds]
    how = f"{len(shares)} rounds of {found.steps} steps on {report.batch_size} images"
    spread = f"{min(shares):.1%} to {max(shares):.1%}"
    rows = [
        ("share of the ceiling", f"{found.share:.1%}", f"{how}: {spread}"),
        ("real data", *_speed(real, [r.real for r in found.rounds])),
        ("resident batch", *_speed(resident, [r.resident for r in found.rounds])),
    ]
    if (spun := found.spinning_images_per_second) is not None:
        each = [r.spinning for r in found.rounds if r.spinning is not None]
        # within rounds, as the share is: a machine that slows down slows a whole round
        taken = 1 - (found.spinning_share or 0.0)
        waited = 1 - statistics.median(r.real / r.spinning for r in found.rounds if r.spinning)
        rows += [
            ("resident batch, loader spinning", *_speed(spun, each)),
            ("lost to interference", f"{taken:.1%}", "the loader competes for cores and memory"),
            ("lost to waiting", f"{waited:.1%}", "batches arrive too late"),
        ]
    if found.loader_share is not None and found.wait_share is not None:
        share, waits = f"{found.loader_share:.2%}", f"{found.wait_share:.1%}"
        rows.append(("loader in the training thread", share, f"of its time; {waits} in next()"))
    if found.device_wait_share is not None:
        rows.append(("GPU without a batch", f"{found.device_wait_share:.2%}", "on its own clock"))
    if cold is not None:
        speed = f"{cold.images_per_second:,.0f} images/s"
        stated = f"{cold.steps} steps; {_from_storage(cold.from_storage)}"
        rows.append(("cold first pass", speed, stated))
    storage, busy = _from_storage(report.from_storage), f"{report.cpu_share:.0%}"
    rows += [
        ("page cache in the rounds", _warmth(report.from_storage), storage),
        ("cores busy", busy, f"{report.threads} decoding threads"),
        ("peak memory", f"{report.peak_memory_bytes / 2**30:.2f} GiB", ""),
    ]
    on_gpu = {
        "GPU busy": report.gpu_utilization,
        "SMs active": report.sm_activity,
        "tensor cores active": report.tensor_activity,
    }
    rows += [
        (name, percent(share), "on real data")
        for name, share in on_gpu.items()
        if share is not None
    ]
    return rows


def percent(share: float | None) -> str:
    """A share, or a dash where there is none."""
    return _NONE if share is None else f"{share:.0%}"


def _milliseconds(low: float, median: float, high: float) -> str:
    quick, usual, slow = (
        f"{seconds * 1e3:,.{1 if seconds < 0.1 else 0}f}" for seconds in (low, median, high)
    )
    return f"{usual} ({quick}-{slow})"


def _speed(median: float, each: list[float]) -> tuple[str, str]:
    return f"{median:,.0f} images/s", f"{min(each):,.0f} to {max(each):,.0f}"


def _warmth(share: float | None) -> str:
    if share is None:
        return "unknown"
    return "warm" if share < _WARM else "cold" if share > 1 - _WARM else "partly warm"


def _from_storage(share: float | None) -> str:
    if share is None:
        return "this system does not count bytes from storage"
    return f"{share:.0%} of the bytes came from storage"
