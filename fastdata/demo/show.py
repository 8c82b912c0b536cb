"""The demo's report for the terminal, for scripts and for a browser."""

import dataclasses
import itertools
import json
from collections.abc import Iterator

from rich.table import Table

from fastdata import report
from fastdata.converters.pack import PackReport
from fastdata.demo.results import DemoReport
from fastdata.report.training import training_sections, training_tiles
from fastdata.system import resources
from fastdata.train.render import accuracy, accuracy_name


def render(done: DemoReport) -> Table:
    """Rich table of everything that was measured."""
    table = Table(title="fastdata demo", title_justify="left", caption_justify="left")
    table.caption = f"{done.seconds:.0f} s in total"
    for name in ("", "what", "images/s", ""):
        table.add_column(name, justify="right" if name == "images/s" else "left")
    for part, rows in itertools.groupby(_rows(done), key=lambda row: row[0]):
        table.add_section()
        for first, row in zip(itertools.chain([part], itertools.repeat("")), rows, strict=False):
            table.add_row(first, *row[1:])
    return table


def to_json(done: DemoReport) -> str:
    """One line of JSON with everything that was measured."""
    return json.dumps(dataclasses.asdict(done), default=str)


def page(done: DemoReport, sheet: str) -> str:
    """HTML document; ``sheet`` is the HTML of the contact sheet."""
    trained = done.training
    fastest = max(done.loading, key=lambda item: item.images_per_second)
    tiles = [
        *training_tiles(trained),
        report.Tile(
            f"{fastest.images_per_second:,.0f}",
            "images/s loading",
            f"{fastest.stored}, {done.loading_size} px, {resources.decode_threads()} threads",
        ),
    ]
    text = (
        f"{done.images} generated images of {trained.classes} classes, packed twice and loaded "
        f"in three ways; {trained.model} trained on them from scratch for {len(trained.epochs)} "
        f"epochs; {done.seconds:.0f} seconds in total."
    )
    sections = [_loading_section(done), *training_sections(trained)]
    shown = report.Section(
        "What the network sees",
        f"The first random crops of the first epoch, at {done.sheet_size} pixels, with class and "
        "key.",
        sheet,
    )
    return report.page("fastdata demo", text, tiles, [shown, *sections])


def _rows(done: DemoReport) -> Iterator[tuple[str, str, str, str]]:
    """Rows of (part of the demo, name, images/s, remark)."""
    for packed in done.packing:
        remark = "already complete" if packed.already_complete else _megabytes(packed)
        yield "pack", _packed_as(packed), _packing_speed(packed), remark
    for item in done.loading:
        yield f"load at {done.loading_size} px", item.stored, f"{item.images_per_second:,.0f}", ""
    trained = done.training
    part, name = f"train {trained.model} at {trained.recipe.size} px", accuracy_name(trained)
    for e in trained.epochs:
        remark = f"{name} {accuracy(e):.1%}"
        yield part, f"epoch {e.epoch + 1}", f"{e.images_per_second:,.0f}", remark
    if trained.ceiling is not None:
        real = f"{trained.ceiling.real_images_per_second:,.0f}"
        resident = f"{trained.ceiling.resident_images_per_second:,.0f}"
        yield "ceiling", "real data", real, f"{trained.ceiling.share:.1%} of the ceiling"
        yield "ceiling", "resident batch", resident, "the speed if loading cost nothing"


def _megabytes(packed: PackReport) -> str:
    return f"{packed.bytes / 1e6:,.1f} MB"


def _packed_as(packed: PackReport) -> str:
    return "LMDB" if packed.kind == "lmdb" else f"{packed.shards} tar shards"


def _packing_speed(packed: PackReport) -> str:
    return "-" if packed.already_complete else f"{packed.samples / packed.seconds:,.0f}"


def _loading_section(done: DemoReport) -> report.Section:
    speeds = {item.stored: item.images_per_second for item in done.loading}
    chart = report.bar_chart(speeds, x_label=f"images/s at {done.loading_size} px")
    packing = report.table(
        ("packed as", "images", "size", "images/s"),
        [(_packed_as(p), p.samples, _megabytes(p), _packing_speed(p)) for p in done.packing],
    )
    if any(packed.already_complete for packed in done.packing):
        packing += "<p>Packed by an earlier demo.</p>"
    text = (
        "Packing reads, checks and writes every image once. Loading reads, decodes, crops at "
        f"random and resizes to {done.loading_size} pixels, with a warm page cache."
    )
    parts = report.figure("Loading alone", chart), packing
    return report.Section("Packing and loading", text, report.row(*parts))
