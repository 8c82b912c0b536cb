"""What the command line prints: tables, progress bars, JSON, errors and warnings."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fastdata.report.text import Rows, human_bytes

if TYPE_CHECKING:
    from fastdata.converters.pack import PackReport


class _Console(Console):
    """Escapes control characters: names come from downloads, and terminals obey them."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with all control characters but line breaks escaped."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = map(escaped, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


out = _Console()
err = _Console(stderr=True)

_LONGEST = 8192  # characters of an error that are printed; a path alone has up to 4,096 bytes

_PLAIN = str.maketrans("▁▂▃▄▅▆▇█", "1234567#")  # for terminals that have ASCII alone


def escaped(text: str) -> str:
    r"""Escape control characters, direction marks and lone surrogates, as ``\x1b``, ``\u202e``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_error(text: str) -> None:
    """Print why a command failed; texts from crafted files are cut to a bearable length."""
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    err.print(Text(escaped(f"error: {shown}")), style="red", soft_wrap=True)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without its place in the code; for ``warnings.showwarning``."""
    err.print(Text(escaped(f"warning: {message}")), style="yellow", soft_wrap=True)


def print_json(content: object) -> None:
    """Print one line of JSON; text that is not valid Unicode is escaped."""
    print(json.dumps(content, default=str))  # noqa: T201


def print_rows(rows: Rows) -> None:
    """Print a table of two columns; brackets in texts are not taken for markup."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for _ in range(2):
        table.add_column(overflow="fold")  # never cut, so that paths can be copied
    for name, value in rows.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        table.add_row(_text(name), _text(f"{value:,}" if number else value))
    out.print(table)


def pack_json(report: "PackReport") -> dict[str, object]:
    """What a pack did, ready for JSON."""
    content = dataclasses.asdict(report)
    content["skipped"] = [skipped._asdict() for skipped in report.skipped]
    return content


@contextmanager
def packing_bar(*, hidden: bool) -> Iterator[Callable[[int, int, int, int], None]]:
    """Show a progress bar on stderr; yields the callback for ``pack``."""
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
    """Show progress bars on stderr, one for each phase; yields a callback (phase, done, total)."""
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
        return Text(f"{images:,.0f} images/s, {human_bytes(done)}/s")


def _text(value: object) -> Text:
    """Text without control characters, and in the terminal's encoding."""
    text = str(value).translate(_PLAIN if out.options.ascii_only else {})
    return Text(escaped(text.encode(out.encoding, "backslashreplace").decode(out.encoding)))
