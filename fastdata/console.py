"""How the command line speaks: tables, progress bars, JSON."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fastdata.converters.pack import PackReport

out = Console()
err = Console(stderr=True)

Rows = Mapping[str, object]
_FEW = 10  # skipped files that are named in a table; JSON has them all


def print_json(content: object) -> None:
    """One line of JSON; text that is not Unicode comes as escapes."""
    print(json.dumps(content, default=str))  # noqa: T201


def print_rows(rows: Rows) -> None:
    """A table of two columns. Text is shown as it is, whatever it holds."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in rows.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        table.add_row(Text(name), Text(f"{value:,}" if number else _printable(value)))
    out.print(table)


def dataset_rows(facts: Mapping[str, Any]) -> Rows:
    """What ``describe`` says of a data set, for people."""
    rows = {name: value for name, value in facts.items() if name not in ("classes", "options")}
    counts = sorted(facts["classes"].items(), key=lambda item: -item[1])
    rows["classes"] = len(counts)
    if counts:
        rows["largest class"] = "{} ({:,})".format(*counts[0])
        rows["smallest class"] = "{} ({:,})".format(*counts[-1])
    for name in ("width", "height"):
        if name in facts:
            low, median, high = facts[name]
            rows[name] = f"{low:,} to {high:,}, median {median:,} pixels"
    for name in ("bytes", "stored_bytes"):
        if name in facts:
            rows[name] = size(facts[name])
    rows.update({f"option {name}": value for name, value in facts.get("options", {}).items()})
    if "skipped" in facts:
        rows["skipped"] = reasons(facts["skipped"])
    return {name.replace("_", " "): value for name, value in rows.items() if value not in ([], "")}


def pack_rows(report: "PackReport") -> Rows:
    """What a pack did, for people."""
    rows: dict[str, object] = {
        "already complete" if report.already_complete else "packed": report.path,
        "samples": report.samples,
        "classes": report.classes,
        "data set": f"{size(report.bytes)} in {report.shards:,} {_shards(report)}",
        "skipped": reasons(report.skipped_counts) or "none",
    }
    if report.kept_counts:
        rows["kept as they were"] = reasons(report.kept_counts)
    if not report.already_complete:
        share = report.image_bytes / report.source_bytes
        rows["images"] = f"{size(report.image_bytes)}, {share:.1%} of the files"
        speed, rate = report.samples / report.seconds, report.source_bytes / report.seconds
        rows["time"] = f"{report.seconds:.1f} s, {speed:,.0f} images/s, {size(rate)}/s"
    for name, reason in report.skipped[:_FEW]:
        rows[f"  {_printable(name)}"] = reason
    if len(report.skipped) > _FEW:
        rows["  ..."] = f"and {len(report.skipped) - _FEW:,} more; --json names them all"
    return rows


def pack_json(report: "PackReport") -> dict[str, object]:
    """What a pack did, for machines."""
    content = dataclasses.asdict(report)
    content["skipped"] = [skipped._asdict() for skipped in report.skipped]
    return content


def size(number: float) -> str:
    """Bytes in decimal units, ``"1.2 GB"``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def reasons(counts: Mapping[str, int]) -> str:
    """``"3 empty file, 1 vanished"``."""
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


@contextmanager
def packing_bar(*, hidden: bool) -> Iterator[Callable[[int, int, int, int], None]]:
    """A bar on stderr; yields the callback that ``pack`` takes."""
    columns = (
        TextColumn("packing"),
        BarColumn(),
        TextColumn("{task.fields[samples]:,} of {task.fields[all_samples]:,}"),
        _Rates(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=hidden or not err.is_terminal) as bar:
        task = bar.add_task("", total=None, samples=0, all_samples=0)

        def step(samples: int, done: int, all_samples: int, total: int) -> None:
            bar.update(task, completed=done, total=total, samples=samples, all_samples=all_samples)

        yield step


@contextmanager
def steps_bar(*, hidden: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Bars on stderr, one for each thing that is done; yields callback (what, done, total)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=hidden or not err.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def step(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield step


class _Rates(ProgressColumn):
    """Images and bytes a second since the start."""

    def render(self, task: Any) -> Text:
        seconds = task.elapsed or 0
        if seconds == 0:
            return Text("")
        images, done = task.fields["samples"] / seconds, task.completed / seconds
        return Text(f"{images:,.0f} images/s, {size(done)}/s")


def _shards(report: "PackReport") -> str:
    return "shards" if report.kind == "tar" else "groups of one file"


def _printable(value: object) -> str:
    """Text without control characters and without what cannot be encoded."""
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
