"""The HTML report of a ladder."""

from fastdata.bench.render import ladder_columns, notes, percent
from fastdata.bench.results import Figures, LadderReport, RungResult
from fastdata.report.charts import bar_chart, line_chart
from fastdata.report.page import Section, Tile, facts, figure, page, row, table


def ladder_page(report: LadderReport) -> str:
    """HTML document with headline figures, charts, every rung, and the machine.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    text = (
        f"{report.model} trained on {report.samples:,} images of {report.classes} classes at "
        f"{report.size} pixels on {report.device}, from a plain loop to the full step: each rung "
        "adds one thing to the rung above it in the table."
    )
    sections = [_speeds(report), _rungs(report), _machine(report)]
    return page("fastdata bench ladder", text, _tiles(_measured(report)), sections)


def _measured(report: LadderReport) -> list[tuple[RungResult, Figures]]:
    """The rungs with figures."""
    return [(item, item.figures) for item in report.rungs if item.figures is not None]


def _tiles(measured: list[tuple[RungResult, Figures]]) -> list[Tile]:
    if not measured:
        return []
    (bottom, first), (top, last) = measured[0], measured[-1]
    times = last.images_per_second / first.images_per_second
    tiles = [
        Tile(f"{last.images_per_second:,.0f}", "images/s at the top", top.rung.name),
        Tile(f"{times:.1f}x", "the bottom's speed", f"{first.images_per_second:,.0f} images/s"),
        Tile(f"{last.share:.1%}", "of the ceiling", f"at the bottom {first.share:.1%}"),
    ]
    if last.gpu_utilization is not None:
        note = f"{bottom.rung.name}: {percent(first.gpu_utilization)}"
        tiles.append(Tile(percent(last.gpu_utilization), "GPU busy", note))
    return tiles


def _speeds(report: LadderReport) -> Section:
    measured = _measured(report)
    speeds = {item.rung.name: found.images_per_second for item, found in measured}
    shares = {"share of the ceiling": [found.share for _, found in measured]}
    busy = [found.gpu_utilization for _, found in measured]
    known = [share for share in busy if share is not None]
    if len(known) == len(busy):
        shares["GPU busy"] = known
    text = (
        "Images a second with loading, and their share of the speed without it, which is that of "
        "the same step on one batch that stays on the device. A faster step raises this ceiling, "
        "so the share can fall while the speed rises."
    )
    charts = row(
        figure("Images/s by rung", bar_chart(speeds, x_label="images/s")),
        figure("Shares by rung", line_chart(shares, x_label="rung", percent=True)),
    )
    return Section("Speed", text, charts)


def _rungs(report: LadderReport) -> Section:
    columns = ladder_columns(report)
    columns["adds"] = [item.rung.adds for item, _ in _measured(report)]
    text = (
        "Milliseconds are the median and the quartiles of the time between the ends of two steps; "
        "images/s count all of the time, including waits in bursts. Shares of the GPU and the "
        "cores are shares of the time in which they were busy. " + "; ".join(notes(report))
    )
    rows = zip(*columns.values(), strict=True)
    return Section("Rungs", f"{text}.", table(list(columns), rows))


def _machine(report: LadderReport) -> Section:
    pairs: dict[str, object] = {
        key.replace("_", " "): value for key, value in report.machine.items()
    }
    warmups = [
        f"{item.rung.name} {found.warmup_seconds:.0f} s" for item, found in _measured(report)
    ]
    pairs["warm-up"] = ", ".join(warmups)
    pairs["files"] = "in memory" if report.in_memory else "read from storage"
    return Section("Machine", "All figures above depend on it.", facts(pairs))
