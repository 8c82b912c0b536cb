"""The benchmarks run, and say what they could not run. No figure is looked at.

Most of them take seconds of several processes that import torch, and are left to `make check`.
"""

import json
import shutil
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from fastdata import photos

_BENCH = ROOT / "bench"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve small pictures in three classes."""
    root = tmp_path_factory.mktemp("bench") / "pictures"
    photos.generate(root, images=12, classes=3, scale=0.2)
    return root


@pytest.mark.check
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


@pytest.mark.check
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


@pytest.mark.check
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


@pytest.mark.check
def test_gpu_measures_each_case(tmp_path: Path) -> None:
    """Without a GPU it shows on the CPU that it runs; saved rows make one table again."""
    pytest.importorskip("torchvision")
    saved = tmp_path / "gpu.json"
    result = _json("gpu.py", "--quick", "--cache", str(tmp_path), "--save", str(saved))

    assert [row["short_side"] for row in result["rows"]] == [None, 64]
    for row in result["rows"]:
        ceiling = row["found"]["ceiling"]
        shares = [found["real"] / found["resident"] for found in ceiling["rounds"]]
        assert len(shares) == 5
        assert ceiling["share"] == statistics.median(shares)
    assert str(tmp_path) not in json.dumps(result)
    assert json.loads(saved.read_text()) == result


def test_rows_of_gpus_make_one_table_where_they_may(tmp_path: Path) -> None:
    """Rows that were measured one by one are put together; another machine's are refused."""
    figures = {"gpu_utilization": 0.9, "sm_activity": None, "tensor_activity": None}
    ceiling = {"real_images_per_second": 990.0, "resident_images_per_second": 1000.0}
    ceiling |= dict.fromkeys(("share", "spinning_share", "device_wait_share", "loader_share"), 0.9)
    found = {**figures, "cpu_share": 0.5, "ceiling": ceiling}
    rows = [
        {"model": model, "batch_size": 256, "short_side": None, "found": found}
        for model in ("resnet50", "vit_b_16")
    ]
    result = {"benchmark": "gpu", "settings": {"images": 9}, "versions": {"fastdata": "1"}}
    result["machine"] = {"cpu": "a CPU", "load": 0.1}
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path, row in zip(paths, reversed(rows), strict=False):
        path.write_text(json.dumps({**result, "rows": [row]}))
    paths[2].write_text(json.dumps({**result, "rows": rows, "machine": {"cpu": "another"}}))

    merged = _json("gpu.py", "--merge", *map(str, paths[:2]))
    refused = _script("gpu.py", "--merge", *map(str, paths))

    assert merged == {**result, "rows": rows}
    assert refused.returncode == 1
    assert f"{paths[2]}: another machine than {paths[0]}" in refused.stderr


@pytest.mark.check
def test_dali_measures_each_way(pictures: Path, tmp_path: Path) -> None:
    """The runs of a crop are fewer bytes than the image, whichever reader cuts them out."""
    pytest.importorskip("nvidia.dali")
    result = _run("dali.py", pictures, tmp_path)

    rows = {row["name"]: row for row in result["rows"]}
    assert all(len(row["rounds"]) == 2 for row in rows.values())
    assert rows["dali-cut"]["kB"] < rows["dali"]["kB"]


@pytest.mark.check
def test_webdataset_decoder_measures_each_way(pictures: Path, tmp_path: Path) -> None:
    """Each way to decode in a pipeline is measured, or left out with a reason."""
    result = _run("webdataset_decoder.py", pictures, tmp_path)

    rows = result["rows"]
    assert [row["name"] for row in rows][-2:] == ["fastdata", "fastdata-runs"]
    assert all("left_out" in row or row["images_per_s"]["median"] > 0 for row in rows)


def test_an_unknown_row_is_refused(pictures: Path, tmp_path: Path) -> None:
    """A misspelt name ends the run at once and is told the names there are."""
    done = _process("loaders.py", pictures, tmp_path, "--only", "torchvision")

    assert done.returncode == 2
    assert "torchvision-pil" in done.stderr


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
    done = _script(script, *options)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _script(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_BENCH / script), *options]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def _process(
    script: str, folder: Path, tmp_path: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_BENCH / script), str(folder), "--quick"]
    command += ["--cache", str(tmp_path / "cache"), *options]
    return subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, text=True)


def _measured(result: dict[str, Any]) -> set[str]:
    return {row["name"] for row in result["rows"] if "left_out" not in row}
