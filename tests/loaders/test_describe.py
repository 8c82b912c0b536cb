"""``info`` says what is there, counted anew from the images themselves."""

import io
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import KINDS, originals, picture
from PIL import Image

from fastdata.cli import console
from fastdata.converters.check.index import IndexReport
from fastdata.converters.pack import pack
from fastdata.converters.problems import Problem, VerifyReport
from fastdata.dataset.manifest import Skipped
from fastdata.loaders.describe import describe, histogram
from fastdata.loaders.export import export
from fastdata.report.sheet import Sheet
from fastdata.report.text import (
    dataset_rows,
    export_rows,
    index_rows,
    pack_rows,
    sheet_rows,
    verify_rows,
)

SIZES = st.lists(st.integers(0, 2**40), min_size=1, max_size=200)


@given(values=SIZES)
@settings(deadline=None)
def test_a_histogram_holds_every_value_once(values: list[int]) -> None:
    """At most 10 bins follow each other from the smallest to the largest and count every value."""
    bins = histogram(np.array(values))

    assert 1 <= len(bins) <= 10
    assert (bins[0][0], bins[-1][1]) == (min(values), max(values))
    assert all(first[1] == second[0] for first, second in pairwise(bins))
    *inner, (low, high, count) = bins
    assert count == sum(low <= value <= high for value in values)
    for low, high, count in inner:
        assert low < high
        assert count == sum(low <= value < high for value in values)


@KINDS
def test_every_fact_of_a_pack(source: Path, tmp_path: Path, name: str) -> None:
    """Formats, bytes and sizes are those that Pillow finds in the files that were packed."""
    (source / "dog").mkdir()
    (source / "cat/note.txt").write_text("no image")
    pack(source, tmp_path / name, keep_bytes=True)
    files = {n: data for n, data in originals(source).items() if not n.endswith(".txt")}
    formats, widths = Counter[str](), []
    for data in files.values():
        with Image.open(io.BytesIO(data)) as image:
            formats[str(image.format).lower()] += 1
            widths.append(image.width)

    facts = describe(tmp_path / name)

    assert json.loads(json.dumps(facts)) == facts
    assert facts["formats"] == formats
    assert facts["classes"] == {"ant": 4, "bee": 4, "cat": 4, "dog": 0}
    assert facts["class_bytes"] == {
        top: sum(len(data) for n, data in files.items() if n.startswith(top))
        for top in ("ant", "bee", "cat", "dog")
    }
    assert facts["bytes"] == sum(facts["class_bytes"].values())
    assert facts["skipped"] == {"no usable image": 1}
    assert facts["not_recoded"] == facts["lossy_notes"] == {}
    assert facts["width"] == [min(widths), int(np.median(widths)), max(widths)]
    for what, bins in facts["histograms"].items():
        assert sum(count for *_, count in bins) == 12, what
    assert facts["histograms"]["height"] == [[10, 10, 12]]
    assert facts["histograms"]["width"][0][0] == min(widths)
    assert facts["histograms"]["megapixels"][-1][1] == max(widths) * 10 / 1e6


def test_a_folder_has_the_facts_that_its_names_and_sizes_tell(folder: Path) -> None:
    """Of a folder that was not packed, classes and bytes are known, also by class."""
    facts = describe(folder)

    assert sum(facts["class_bytes"].values()) == facts["bytes"]
    assert facts["classes"] == {"ant": 8, "bee": 8, "cat": 7}
    assert sum(count for *_, count in facts["histograms"]["bytes"]) == 23
    assert dataset_rows(facts)["classes"] == 3


def test_a_flat_folder_has_no_classes(tmp_path: Path) -> None:
    """Samples without a label are counted as such."""
    source = tmp_path / "flat"
    source.mkdir()
    (source / "a.jpg").write_bytes(picture(0))
    pack(source, tmp_path / "packed")

    facts = describe(tmp_path / "packed")

    assert (facts["classes"], facts["class_bytes"], facts["unlabelled"]) == ({}, {}, 1)


def test_rows_are_short_and_show_bars(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has a line for each class, format and histogram, and prints whatever the names."""
    pack(source, tmp_path / "packed", keep_bytes=True)

    facts = describe(tmp_path / "packed")
    rows = dataset_rows(facts)
    console.print_rows(rows)

    assert str(rows["class ant"]).startswith("█" * 20 + " 4 (33.3%), ")
    assert str(rows["format jpeg"]).endswith(" 10 (83.3%)")
    assert set(str(rows["widths"])) & set("▁▂▃▄▅▆▇█")
    assert len(rows) < 30
    assert facts["fingerprint"] in "".join(capsys.readouterr().out.split())  # never cut


def test_a_plain_terminal_gets_plain_signs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the terminal has ASCII alone, bars and names are written in it."""
    monkeypatch.setattr(type(console.out), "encoding", "ascii")
    rows = dataset_rows(describe(folder))
    console.print_rows({**rows, "caf\u00e9 \u6d77": "\udcff"})

    text = capsys.readouterr().out
    assert text.isascii()
    assert "#" * 20 in text
    assert "caf\\xe9 \\u6d77" in text


def test_every_report_has_rows(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What pack, export, show, verify and index report fits a table, the long lists cut."""
    for number in range(12):
        (source / f"ant/note{number:02}.txt").write_text("no image")
    packed = pack(source, tmp_path / "packed")
    again = pack(source, tmp_path / "packed")
    problems = tuple(Problem("damaged", "a.tar", "k\ney", "it is") for _ in range(60))
    skipped = tuple(Skipped(f"x{number}", "vanished: why") for number in range(12))
    indexed = IndexReport(tmp_path, 1, ("a",), ("json",), 2, 3, skipped, 0.0)
    for rows, lines, text in [
        (pack_rows(packed), 18, "bottleneck: "),
        (pack_rows(again), 5, "already complete"),
        (export_rows(export(tmp_path / "packed", tmp_path / "dst")), 7, "2 extension of"),
        (sheet_rows(Sheet(tmp_path, 2, 3, 1, 9, 8, ("k",))), 5, "cannot be decoded"),
        (verify_rows(VerifyReport(tmp_path, 5, 9, (), 0.0)), 4, "intact"),
        (verify_rows(VerifyReport(tmp_path, 5, 9, problems, 2.0)), 55, "k\\ney"),
        (index_rows(indexed), 18, "12 vanished"),
    ]:
        console.print_rows(rows)
        printed = capsys.readouterr().out
        assert text in printed
        assert len(rows) == lines, printed


def test_many_classes_are_two_rows(tmp_path: Path) -> None:
    """Of more than a table can show, the largest and the smallest class are named."""
    source = tmp_path / "source"
    for number in range(11):
        for copy in range(1 + (number == 3)):
            path = source / f"c{number:02}" / f"{copy}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(number))

    rows = dataset_rows(describe(source))

    assert rows["classes"] == 11
    assert str(rows["largest class"]).startswith("c03 (2; ")
    assert not [name for name in rows if name.startswith("class ")]
