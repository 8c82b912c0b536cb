"""Shared by the benchmarks: interleaved rounds, medians with their spread, machine facts, output.

Every measurement is taken in rounds. In each round every row has its turn, in an order that rotates
by one, so that other load on the machine affects all rows alike. A row's figure is the median of
its rounds, with the lowest and the highest beside it. A ratio is the median of the ratios within
rounds, which is steadier than the ratio of two medians.
"""

import argparse
import json
import os
import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fastdata
from fastdata.native import decoder
from fastdata.system import resources


@dataclass
class Row:
    """A row of a benchmark.

    Attributes:
        name: For selecting and printing it.
        about: What it does, in a few words.
        rates: Images per second of each round.
        facts: Further figures by name.
        left_out: Why it was not measured; empty if it was.
    """

    name: str
    about: str
    rates: list[float] = field(default_factory=list)
    facts: dict[str, float | int | str] = field(default_factory=dict)
    left_out: str = ""

    @property
    def median(self) -> float:
        """Median of the rounds in images per second."""
        return statistics.median(self.rates)

    def ratio(self, base: "Row") -> float:
        """Speed relative to ``base``: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.rates, base.rates, strict=True))

    def as_json(self, bases: Sequence["Row"]) -> dict[str, Any]:
        """The row for the JSON line."""
        if self.left_out:
            return {"name": self.name, "about": self.about, "left_out": self.left_out}
        return {
            "name": self.name,
            "about": self.about,
            "images_per_s": {
                "median": round(self.median, 1),
                "low": round(min(self.rates), 1),
                "high": round(max(self.rates), 1),
            },
            "rounds": [round(rate, 1) for rate in self.rates],
            "times": {base.name: round(self.ratio(base), 3) for base in bases},
            **self.facts,
        }


def add_options(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add the options that benchmarks share.

    Args:
        parser: Gets the options.
        names: Of the rows that there are.
    """
    known = list(names)

    def chosen(text: str) -> list[str]:
        if unknown := set(text.split(",")) - set(known):
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)} among {', '.join(known)}")
        return text.split(",")

    parser.add_argument("folder", type=Path, nargs="?", help="class folders with .jpg files")
    parser.add_argument("--only", type=chosen, default=known, help="rows to measure: NAME,NAME,...")
    parser.add_argument("--size", type=int, default=224, help="side of the crops in pixels")
    parser.add_argument("--short-side", type=int, help="resize images to this first, at quality 90")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(__file__).parent / "cache",
        help="folder for generated and packed images",
    )
    parser.add_argument("--save", type=Path, help="write the JSON line to this file too")
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")


def interleaved(rows: Sequence[Row], rounds: int) -> Iterator[tuple[int, Row]]:
    """Each row once a round, as (round, row), without rows that have failed."""
    for number in range(rounds):
        for place in range(len(rows)):
            row = rows[(place + number) % len(rows)]
            if not row.left_out:
                yield number, row


def missing(modules: Iterable[str]) -> str:
    """Why a row is left out: the modules that are not installed; or empty."""
    absent = [name for name in modules if not _installed(name)]
    return f"{', '.join(absent)} not installed" if absent else ""


def machine() -> dict[str, Any]:
    """Facts about this machine that figures depend on."""
    return {
        "cpu": _cpu_name(),
        "cores": resources.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "decoder": decoder(),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of fastdata and of the installed packages."""
    found = {"fastdata": fastdata.__version__}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def report(
    benchmark: str,
    rows: Sequence[Row],
    *,
    bases: Sequence[str],
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    packages: Sequence[str],
    save: Path | None,
) -> None:
    """Print a table for people and, as the last line, everything as JSON.

    Args:
        benchmark: Name of the benchmark.
        rows: What was measured, and what was left out.
        bases: Names of the rows that others are compared with, where they were measured.
        settings: How it was measured.
        facts: Of the machine, taken by :func:`machine` before the benchmark loaded it.
        packages: Distributions whose versions are stated.
        save: File to write the JSON to as well.
    """
    measured = [row for row in rows if not row.left_out]
    compared = [row for row in measured if row.name in bases]
    result = {
        "benchmark": benchmark,
        "settings": dict(settings),
        "machine": dict(facts),
        "versions": versions(packages),
        "rows": [row.as_json(compared) for row in rows],
    }
    _print_rates(measured, compared)
    _print_facts(measured)
    for row in rows:
        if row.left_out:
            print(f"left out: {row.name}: {row.left_out}")
    put_out(result, save)


def put_out(result: Mapping[str, Any], path: Path | None) -> None:
    """Print a result as one line of JSON, and write it to a file if one is given."""
    if path is not None:
        save(result, path)
    print(json.dumps(result), flush=True)


def save(result: Mapping[str, Any], path: Path) -> None:
    """Write a result to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _print_rates(rows: Sequence[Row], bases: Sequence[Row]) -> None:
    """Rows from slow to fast, with their speed relative to each base."""
    lines = [["", "images/s", "low", "high", *(f"x {base.name}" for base in bases)]]
    for row in sorted(rows, key=lambda row: row.median):
        figures = [f"{rate:,.0f}" for rate in (row.median, min(row.rates), max(row.rates))]
        lines.append([row.name, *figures, *(f"{row.ratio(base):.2f}" for base in bases)])
    _print_aligned(lines)


def _print_facts(rows: Sequence[Row]) -> None:
    """Further figures of the rows."""
    facts = list(dict.fromkeys(name for row in rows for name in row.facts))
    lines = [["", *facts, ""]]
    lines += [[row.name, *(str(row.facts.get(f, "")) for f in facts), row.about] for row in rows]
    _print_aligned(lines)


def _print_aligned(lines: Sequence[Sequence[str]]) -> None:
    """A table; its first and last columns are left-aligned if they have no heading."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if head else cell.ljust(width)
            for cell, width, head in zip(line, widths, lines[0], strict=True)
        ]
        print("  ".join(cells).rstrip())
    print()


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that the module would be in
        return False


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
