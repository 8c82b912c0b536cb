"""What is published of the benchmarks: tables of what was measured, and of what there is."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from places import ROOT

_BENCH = ROOT / "bench"


def test_published_tables_say_what_was_measured() -> None:
    """The tables in the README and in docs/ are those that the results in the repository make."""
    done = _compare("--check")

    assert done.returncode == 0, done.stderr


def test_compare_writes_what_the_results_say(tmp_path: Path) -> None:
    """A page gets each loader's median of each result, and a dash where it was not measured."""
    page = _page(tmp_path, "figures")
    _result(tmp_path / "large.json", kilobytes=100, medians={"dali": 1234.5, "fastdata-tar": 4000})
    _result(tmp_path / "small.json", kilobytes=20, medians={"fastdata-tar": 9000})

    done = _compare(str(page), "--results", str(tmp_path))

    text = page.read_text()
    assert done.returncode == 0, done.stderr
    assert "| DALI, on the CPU | 1,234 | – |" in text  # noqa: RUF001 - the dash of the tables
    assert "| **fastdata**, tar shards | 4,000 | 9,000 |" in text
    assert text.startswith("before\n")
    assert text.endswith("\nbehind\n")


def test_machines_have_tables_of_their_own(tmp_path: Path) -> None:
    """Results of different machines or settings are never put side by side in one table."""
    page = _page(tmp_path, "figures")
    _result(tmp_path / "a.json", kilobytes=100, medians={"dali": 1000}, threads=2)
    _result(tmp_path / "b.json", kilobytes=100, medians={"dali": 7000}, threads=16)

    _compare(str(page), "--results", str(tmp_path))

    assert page.read_text().count("| loader |") == 2


def test_check_notices_another_figure(tmp_path: Path) -> None:
    """A table that is not what the results say is exit code 1, is named, and stays as it is."""
    page = _page(tmp_path, "figures")
    _result(tmp_path / "a.json", kilobytes=100, medians={"dali": 1000})
    written = _compare(str(page), "--results", str(tmp_path))
    same = _compare(str(page), "--results", str(tmp_path), "--check")
    text = page.read_text()
    _result(tmp_path / "a.json", kilobytes=100, medians={"dali": 1100})

    differs = _compare(str(page), "--results", str(tmp_path), "--check")

    assert (written.returncode, same.returncode, differs.returncode) == (0, 0, 1)
    assert "1,100" in differs.stderr
    assert str(page) in differs.stderr
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("place", "result", "message"),
    [
        ("figures", "{}", "is no result of a benchmark"),
        ("figure", None, "no table figure among figures"),
        ("", None, "has no line"),
    ],
)
def test_compare_refuses(tmp_path: Path, place: str, result: str | None, message: str) -> None:
    """A page without a place, an unknown table and a file that is no result are one clear error."""
    page = _page(tmp_path, place)
    if result is not None:
        (tmp_path / "a.json").write_text(result)

    done = _compare(str(page), "--results", str(tmp_path))

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_each_feature_is_answered_for_each_loader() -> None:
    """No cell is missing, and those of the short table begin with yes, partly or no."""
    features = tomllib.loads((_BENCH / "features.toml").read_text())

    for feature in features["features"]:
        cells = {tool: feature[tool] for tool in features["tools"]}
        assert feature.keys() - cells.keys() <= {"name", "short"}
        if feature.get("short", True):
            first = {cell.partition(":")[0] for cell in cells.values()}
            assert first <= {"yes", "partly", "no"}, feature["name"]


def _page(folder: Path, place: str) -> Path:
    """A page with one place for a table."""
    page = folder / "page.md"
    page.write_text(f"before\n<!-- bench/compare.py: {place} -->\n<!-- end -->\nbehind\n")
    return page


def _result(path: Path, *, kilobytes: float, medians: dict[str, float], threads: int = 2) -> None:
    """A file as ``loaders.py --save`` writes it."""
    rates = {name: {"median": rate, "low": rate, "high": rate} for name, rate in medians.items()}
    settings = {"source": "pictures", "kilobytes_per_image": kilobytes, "short_side": None}
    settings |= {"threads": threads, "size": 224, "batch": 64, "rounds": 5}
    result = {
        "benchmark": "loaders",
        "settings": settings,
        "machine": {"cpu": "a CPU", "cores": 2},
        "versions": {"fastdata": "0.1.0"},
        "rows": [
            {"name": name, "about": name, "images_per_s": rate} for name, rate in rates.items()
        ],
    }
    path.write_text(json.dumps(result))


def _compare(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_BENCH / "compare.py"), *options]
    return subprocess.run(command, capture_output=True, check=False, text=True)
