"""Reports are one file that shows what it was given and fetches nothing."""

import base64
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest

from fastdata import report
from fastdata.errors import MissingExtraError
from fastdata.report.page import escape
from fastdata.report.training import training_sections, training_tiles
from fastdata.train import Ceiling, EpochResult, Recipe, Round, TrainReport

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'&amp;<b>",
    "cut\x00off\n\x1b[31m",
    "turned\u202earound",
    b"no utf-8 \xff".decode("utf-8", "surrogateescape"),
    "$\\frac{1}{0}$",
    "Bär/日本",
)

_VOID = {"img", "meta", "br"}


class _Page(HTMLParser):
    """Tags, attributes and text of a document; refuses tags that do not nest."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def training() -> TrainReport:
    """A run of two epochs."""
    epochs = tuple(EpochResult(n, 2.5 - n, 0.1 + n / 4, 0.125 + n / 2, 90.0, 0.1) for n in (0, 1))
    rounds = tuple(Round(90.0 + n, 100.0) for n in range(5))
    return TrainReport(
        path="train", val="val", samples=400, val_samples=100, classes=10, model="resnet18",
        parameters=11_000_000, recipe=Recipe(size=96, batch_size=16), world_size=1, lr=0.05,
        device="cpu", epochs=epochs,
        images_per_second=90.0, warmup_seconds=1.0, ceiling=Ceiling(92.0, 100.0, 0.92, rounds, 4),
        gpu_utilization=None, peak_memory_bytes=2**30, machine={"cpu": "<i>Z80</i>", "cores": 2},
    )  # fmt: skip


@pytest.fixture
def document(training: TrainReport) -> str:
    """A page with everything on it, hostile text in every place."""
    pixels = np.zeros((len(HOSTILE), 16, 16, 3), np.uint8)
    captions = [(text, text) for text in HOSTILE]
    everywhere = " ".join(HOSTILE)
    sections = [
        report.Section(everywhere, everywhere, report.contact_sheet(pixels, captions)),
        report.Section("table", "", report.table(HOSTILE, [HOSTILE], caption=everywhere)),
        report.Section("facts", "", report.facts(dict.fromkeys(HOSTILE, everywhere))),
        *training_sections(training),
    ]
    tiles = [report.Tile(text, text, text) for text in HOSTILE] + training_tiles(training)
    return report.page(everywhere, everywhere, tiles, sections)


def test_document_is_whole(document: str) -> None:
    """Every tag is closed in its turn, whatever the text."""
    tags = [tag for tag, _ in _Page(document).tags]

    assert tags.count("section") == 6
    assert tags.count("svg") == 3


def test_nothing_is_fetched(document: str) -> None:
    """The document names no address, and its policy forbids the browser to follow one."""
    page = _Page(document)
    addresses = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href", "action", "data", "srcset")
    ]

    assert addresses
    assert all(value and value.startswith(("data:image/", "#")) for value in addresses)
    assert "http" not in document.replace("http-equiv", "")
    assert "@import" not in document
    assert set(re.findall(r"url\((.)", document)) <= {"#"}
    assert "default-src 'none'" in document


def test_text_is_never_markup(document: str) -> None:
    """Hostile text makes no tag and no attribute."""
    page = _Page(document)

    assert "script" not in {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, found in page.tags for name in found)
    assert [tag for tag, _ in page.tags].count("img") == len(HOSTILE)
    assert "".join(page.texts).count("<script>alert(1)</script>") >= 8


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\n", "a\\x00b\\n"),
        ("a\u202eb", "a\\u202eb"),
        (b"\xff".decode("utf-8", "surrogateescape"), "\\udcff"),
        ("Bär 日本", "Bär 日本"),
        ("<&>\"'", "&lt;&amp;&gt;&quot;&#x27;"),
    ],
)
def test_what_cannot_be_shown_is_spelled_out(text: str, shown: str) -> None:
    """Control characters, marks of direction and broken bytes appear as their numbers."""
    assert escape(text) == shown


def test_pictures_are_the_ones_given() -> None:
    """Each picture of the sheet decodes to the pixels it was made from, red before blue."""
    pixels = np.zeros((3, 20, 30, 3), np.uint8)
    for number in range(3):
        pixels[number, :, :, number] = 200
    sheet = report.contact_sheet(pixels, [("red", "a"), ("green", "b"), ("blue", "c")])
    tags = [attributes for tag, attributes in _Page(sheet).tags if tag == "img"]

    assert [attributes["alt"] for attributes in tags] == ["red", "green", "blue"]
    for attributes, expected in zip(tags, pixels, strict=True):
        data = base64.b64decode(str(attributes["src"]).partition(",")[2])
        found = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        assert found is not None
        assert np.abs(found[:, :, ::-1].astype(int) - expected).max() <= 3


def test_charts_take_the_colours_of_the_page() -> None:
    """A chart has no colour of its own, so that it can be read in light and in dark."""
    chart = report.line_chart({"one": [1, 2], "two": [2, 1]}, x_label="x", guide=("level", 1.5))

    assert not re.search(r":\s*#[0-9a-f]{3}", chart)
    assert {"currentColor", "var(--one)", "var(--two)"} <= set(re.findall(r"[\w(-]+\w\)?", chart))
    assert all(f">{name}<" in chart for name in ("one", "two", "level"))


def test_charts_do_not_share_ids() -> None:
    """Two charts on one page refer each to its own parts."""
    charts = [report.bar_chart({"a": size, "b": 2}, x_label="x") for size in (1, 3)]
    ids = [set(re.findall(r' id="([^"]+)"', chart)) for chart in charts]
    used = [set(re.findall(r'(?:url\(#|href="#)([^")]+)', chart)) for chart in charts]

    assert ids[0].isdisjoint(ids[1])
    assert all(names <= own for names, own in zip(used, ids, strict=True))


def test_same_chart_same_bytes() -> None:
    """A chart depends on its values alone."""
    first, second = (
        report.rounds_chart([(1, 2), (2, 2)], names=("real", "resident")) for _ in range(2)
    )

    assert first == second


def test_single_values_make_a_chart() -> None:
    """One epoch is enough, and names may hold what looks like mathematics."""
    chart = report.line_chart({"$a": [0.5]}, x_label="epoch", percent=True)

    assert ">$a<" in chart


def test_run_without_validation_and_ceiling(training: TrainReport) -> None:
    """What was not measured is left out, and the accuracy keeps its name."""
    epochs = tuple(replace(epoch, val_accuracy=None) for epoch in training.epochs)
    bare = replace(training, val=None, val_samples=0, ceiling=None, epochs=epochs)
    labels = [tile.label for tile in training_tiles(bare)]

    assert labels == ["train accuracy", "images/s training"]
    assert [section.title for section in training_sections(bare)] == ["Training", "Machine"]


def test_page_replaces_the_old_one(document: str, tmp_path: Path) -> None:
    """A report is written whole, in place of an older one, and leaves nothing beside it."""
    path = tmp_path / "report.html"
    path.write_text("old")
    report.write_page(path, document)

    assert path.read_text(encoding="utf-8") == document
    assert list(tmp_path.iterdir()) == [path]


def test_matplotlib_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib the error has the line that installs it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'fastdata\[train\]'"):
        report.bar_chart({"a": 1}, x_label="x")
