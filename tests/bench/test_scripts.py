"""The benchmarks run, and say what they could not run. No figure is looked at."""

import ast
import inspect
import json
import operator
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

import fastdata
from fastdata import photos

_BENCH = ROOT / "bench"

# each benchmark starts several processes that import torch
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve small pictures in three classes."""
    root = tmp_path_factory.mktemp("bench") / "pictures"
    photos.generate(root, images=12, classes=3, scale=0.2)
    return root


def test_decode_measures_each_decoder(pictures: Path, tmp_path: Path) -> None:
    """Each decoder gets a rate for each round, and pixels near Pillow's, of resized images."""
    pytest.importorskip("PIL")

    result = _run("decode.py", pictures, tmp_path, "--short-side", "48")

    rows = {row["name"]: row for row in result["rows"]}
    assert {"pillow", "opencv", "fastdata-opencv"} <= _measured(result)
    assert all(len(rows[name]["rounds"]) == 2 for name in _measured(result))
    assert rows["pillow"]["off"] == 0
    assert rows["fastdata-opencv"]["off"] < 0.5
    sizes = [path.stat().st_size for path in pictures.glob("*/*.jpg")]
    assert 1000 * result["settings"]["kilobytes_per_image"] < sum(sizes) / len(sizes)


def test_loaders_measures_or_leaves_out_with_a_reason(pictures: Path, tmp_path: Path) -> None:
    """A loader that is absent, or stops with an error, hides neither itself nor the others."""
    names = ["torchvision-v2", "spdl", "streaming", "fastdata-tar", "fastdata-lmdb"]
    damaged = tmp_path / "damaged"
    shutil.copytree(pictures, damaged)
    (damaged / photos.class_names(3)[0] / "bad.jpg").write_bytes(b"no image")

    result = _run("loaders.py", damaged, tmp_path, "--only", ",".join(names))

    rows = {row["name"]: row for row in result["rows"]}
    assert list(rows) == names
    packed = {"fastdata-tar", "fastdata-lmdb"}  # packing skips what is no image
    assert packed <= _measured(result) <= {*packed, "spdl"}  # which leaves out what fails
    assert rows["fastdata-tar"]["gives"] == "uint8 (4, 3, 64, 64)"
    absent = find_spec("torchvision") is None
    reason = "torchvision not installed" if absent else "measure: "
    assert rows["torchvision-v2"]["left_out"].startswith(reason)
    for name in ("spdl", "streaming"):
        assert find_spec(name) or rows[name]["left_out"].endswith("not installed")


def test_pack_measures_each_way_of_packing(pictures: Path, tmp_path: Path) -> None:
    """Shards and LMDB, coded anew and kept, beside tar(1), each with a rate for each round."""
    result = _run("pack.py", pictures, tmp_path)

    ours = {f"fastdata-{kind}{keep}" for kind in ("tar", "lmdb") for keep in ("", "-keep")}
    assert ours | {"tar"} <= _measured(result)
    assert all(len(row["rounds"]) == 2 for row in result["rows"] if "left_out" not in row)


def test_scale_measures_each_size(tmp_path: Path) -> None:
    """Opening and planning are measured for each number of samples and ranks, and plotted."""
    pytest.importorskip("matplotlib")
    plot = tmp_path / "scale.png"

    result = _json("scale.py", "--quick", "--plot", str(plot))

    assert [row["samples"] for row in result["samples"]] == [10_000, 100_000]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_damage_never_passes_in_silence() -> None:
    """Whatever is broken, ours says so or gives what was packed; it does not crash either."""
    result = _json("damage.py", "--cases", "1", "--json")

    ours = [row["outcome"] for row in result["rows"] if row["reader"] == "fastdata"]
    assert len(ours) > 5
    assert set(ours) <= {"1 error", "1 same"}


@pytest.mark.long
def test_exactness_compares_loaders() -> None:
    """The comparison of order, ranks and evaluation runs against the peers that are there."""
    result = _json("exactness.py")

    assert result["fastdata"]["order with 1 and with 2 workers"] == "the same"


def test_gpu_measures_each_case(tmp_path: Path) -> None:
    """Without a GPU it shows on the CPU that it runs; saved rows make one table again."""
    pytest.importorskip("torchvision")
    saved = tmp_path / "gpu.json"
    result = _json("gpu.py", "--quick", "--cache", str(tmp_path), "--save", str(saved))

    assert [row["short_side"] for row in result["rows"]] == [None, 64]
    assert all(len(row["found"]["ceiling"]["rounds"]) == 5 for row in result["rows"])
    assert str(tmp_path) not in json.dumps(result)
    assert json.loads(saved.read_text()) == result

    parts = []
    for number, row in enumerate(result["rows"]):
        parts.append(tmp_path / f"{number}.json")
        parts[-1].write_text(json.dumps({**result, "rows": [row]}))
    assert _json("gpu.py", "--merge", *map(str, parts)) == result


def test_an_unknown_row_is_refused(pictures: Path, tmp_path: Path) -> None:
    """A misspelt name ends the run at once and is told the names there are."""
    done = _process("loaders.py", pictures, tmp_path, "--only", "torchvision")

    assert done.returncode == 2
    assert "torchvision-pil" in done.stderr


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


def test_migration_notes_use_what_there_is() -> None:
    """Each fastdata call in docs/migrate.md has a name and keywords that fastdata has."""
    page = (_BENCH.parent / "docs" / "migrate.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    trees = [ast.parse(textwrap.dedent(block)) for block in blocks]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    ours = [call for call in calls if ast.unparse(call.func).startswith("fd.")]

    assert len(ours) > 10
    for call in ours:
        function = operator.attrgetter(ast.unparse(call.func).removeprefix("fd."))(fastdata)
        keywords: dict[str, Any] = {str(keyword.arg): None for keyword in call.keywords}
        inspect.signature(function).bind(*call.args, **keywords)


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


def _run(script: str, folder: Path, tmp_path: Path, *options: str) -> dict[str, Any]:
    """The JSON line of a tiny run."""
    saved = tmp_path / "saved.json"
    done = _process(script, folder, tmp_path, "--save", str(saved), *options)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(saved.read_text()) == result
    assert result["machine"]["cores"] >= 1
    assert result["versions"]["fastdata"]
    return result


def _json(script: str, *options: str) -> dict[str, Any]:
    """The JSON line of a script that needs no pictures."""
    command = [sys.executable, str(_BENCH / script), *options]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _process(
    script: str, folder: Path, tmp_path: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_BENCH / script), str(folder), "--quick"]
    command += ["--cache", str(tmp_path / "cache"), *options]
    return subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, text=True)


def _measured(result: dict[str, Any]) -> set[str]:
    return {row["name"] for row in result["rows"] if "left_out" not in row}
