"""Charts as inline SVG with the colours of the page, light or dark."""

import io
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastdata.errors import MissingExtraError

# Placeholders: matplotlib draws in these, and the SVG gets the page's colours instead.
_INK, _GRID, _ONE, _TWO = "#010203", "#020304", "#030405", "#040506"
_COLOURS = {_INK: "currentColor", _GRID: "var(--line)", _ONE: "var(--one)", _TWO: "var(--two)"}
_SERIES = (_ONE, _TWO)
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text, in the page's font
    "svg.hashsalt": "fastdata",  # the same chart gives the same bytes
    "text.parse_math": False,  # a name may hold dollar signs
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 2,
    "lines.markersize": 6,
    "legend.frameon": False,
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def line_chart(
    series: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    percent: bool = False,
    guide: tuple[str, float] | None = None,
) -> str:
    """SVG with one line for each of at most two series, over 1, 2, 3 ...

    Args:
        series: Values by name.
        x_label: Label of the horizontal axis.
        percent: Whether values are shares from 0 to 1, to be shown in percent.
        guide: Name and height of a dashed line for comparison.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """

    def draw(axes: Any) -> None:
        count = max(map(len, series.values()))
        for (name, values), colour in zip(series.items(), _SERIES, strict=False):
            axes.plot(range(1, len(values) + 1), values, "o-", color=colour, label=name)
        if guide is not None:
            axes.axhline(guide[1], color=_INK, linestyle="--", linewidth=1, label=guide[0])
        axes.set_ylim(0, 1 if percent else None)
        if percent:
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        _count_along_x(axes, count, x_label)

    return _svg(draw)


def bar_chart(values: Mapping[str, float], *, x_label: str) -> str:
    """SVG with one labelled bar for each value, from top to bottom.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """

    def draw(axes: Any) -> None:
        bars = axes.barh(list(values), list(values.values()), color=_ONE, height=0.55)
        axes.bar_label(bars, fmt="{:,.0f}", padding=4)
        axes.invert_yaxis()
        axes.margins(x=0.16)
        axes.grid(axis="x")
        axes.set_xlabel(x_label)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")

    return _svg(draw)


def rounds_chart(pairs: Sequence[tuple[float, float]], *, names: tuple[str, str]) -> str:
    """SVG of interleaved measurements: two dots for each round, joined.

    Args:
        pairs: The two measurements of each round.
        names: Their names.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """

    def draw(axes: Any) -> None:
        rounds = range(1, len(pairs) + 1)
        low, high = [min(pair) for pair in pairs], [max(pair) for pair in pairs]
        axes.vlines(rounds, low, high, color=_GRID, linewidth=3)
        for place, (name, colour) in enumerate(zip(names, _SERIES, strict=True)):
            axes.plot(rounds, [pair[place] for pair in pairs], "o", color=colour, label=name)
        axes.set_ylim(0, max(high) * 1.1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        _count_along_x(axes, len(pairs), "round")

    return _svg(draw)


def _svg(draw: Callable[[Any], None]) -> str:
    """SVG of a figure with one pair of axes, on which ``draw`` draws."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import (
            Figure,  # pyplot would keep figures and choose a window toolkit
        )
    except ImportError as error:
        raise MissingExtraError(
            "charts need matplotlib; install it with: pip install 'fastdata[train]'"
        ) from error
    file = io.StringIO()
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(4.6, 2.9), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    return _inline(file.getvalue())


def _count_along_x(axes: Any, count: int, label: str) -> None:
    """Whole numbers along x, horizontal lines, and the legend on top."""
    axes.set_xlabel(label)
    axes.set_xlim(0.7, count + 0.3)
    axes.set_xticks(range(1, count + 1, -(-count // 10)))
    axes.grid(axis="y")
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2,
        handlelength=1.2, handletextpad=0.5, columnspacing=1.2,
    )  # fmt: skip


def _inline(svg: str) -> str:
    """An SVG file as an element of a page: with its colours and font, and with unique ids."""
    prefix = f"c{zlib.crc32(svg.encode()):08x}-"  # ids of the charts on a page must differ
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)  # HTML needs no namespaces
    svg = re.sub(r"font(-family)?: [^;\"]*'[^;\"]*; ", "", svg)
    for drawn, shown in _COLOURS.items():
        svg = svg.replace(drawn, shown)
    return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", svg)
