"""The ladder: its rungs, what feeds them, what is measured, and its commands."""

import dataclasses
import itertools
import json
import multiprocessing
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fastdata.bench import LadderReport, LadderSettings, Rung, ladder, rungs
from fastdata.bench.feeds import open_feed
from fastdata.cli.commands import app
from fastdata.errors import NotADatasetError, OptionError
from fastdata.train.step import TrainStep

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

CPU = torch.device("cpu")


def climb(path: Path, **options: Any) -> LadderReport:
    """A ladder of a few seconds: tiny images, two steps a rung, no real compiler."""
    given: dict[str, Any] = {
        "model": "squeezenet1_1", "size": 32, "batch_size": 4, "workers": 1, "steps": 2,
        "device": "cpu",
    }  # fmt: skip
    chosen = {field.name for field in dataclasses.fields(LadderSettings)} & options.keys()
    given |= {name: options.pop(name) for name in chosen}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
        patch.setattr("fastdata.bench.measure._LEAD_IN", 1)
        return ladder(path, LadderSettings(**given), **options)


@pytest.fixture(scope="module")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LadderReport:
    """The whole ladder on a folder."""
    return climb(folder, work=tmp_path_factory.mktemp("work"))


def _only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    chosen = [rung for rung in rungs(batch_size=8, workers=1) if rung.name in names]
    monkeypatch.setattr("fastdata.bench.run.rungs", lambda **_: chosen)


# The plan


def test_each_rung_adds_one_thing() -> None:
    """From a rung to the next exactly one switch changes."""
    for lower, upper in itertools.pairwise(rungs(batch_size=256, workers=14)):
        first, second = dataclasses.asdict(lower), dataclasses.asdict(upper)
        changed = {name for name in first if first[name] != second[name]}

        assert len(changed - {"name", "adds", "needs_cuda"}) == 1, (lower.name, upper.name)


def test_the_ladder_leads_from_plain_to_everything() -> None:
    """The lowest rung has no trick, the highest has all, and names say which is which."""
    all_rungs = rungs(batch_size=256, workers=14)
    switches = ("pinned", "uint8", "channels_last", "cudnn_benchmark", "compile", "fused")

    assert [rung.name for rung in all_rungs] == [
        "plain", "workers", "pinned", "batch", "uint8", "fastdata", "bf16", "channels_last",
        "cudnn", "compile", "fused",
    ]  # fmt: skip
    assert not any(getattr(all_rungs[0], name) for name in (*switches, "workers"))
    assert all(getattr(all_rungs[-1], name) for name in switches)
    assert (all_rungs[0].batch_size, all_rungs[-1].batch_size) == (64, 256)


def test_without_the_compiler() -> None:
    """Without compile no rung compiles, and the others are the same."""
    kept = rungs(batch_size=8, workers=1, compile=False)

    assert not any(rung.compile for rung in kept)
    assert len(kept) == len(rungs(batch_size=8, workers=1)) - 1


# The batches


def _feed(rung: Rung, folder: Path, packed: Path) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    feed = open_feed(rung, folder=folder, packed=packed, size=24, device=CPU)
    batch = next(feed)
    feed.close()
    return batch


def test_bytes_normalised_on_the_device_are_the_hosts_floats(folder: Path, shards: Path) -> None:
    """The uint8 rung trains on the pixels and labels of the rung below it."""
    plain = Rung(name="", adds="", batch_size=8)
    images, labels = _feed(plain, folder, shards)
    same_images, same_labels = _feed(dataclasses.replace(plain, uint8=True), folder, shards)

    torch.testing.assert_close(images, same_images, rtol=0, atol=1e-5)
    assert torch.equal(labels, same_labels)


def test_every_feed_gives_what_a_step_takes(folder: Path, shards: Path) -> None:
    """Every rung's batches have the rung's size and normalised pixels; its workers end with it."""
    for rung in rungs(batch_size=8, workers=1):
        images, labels = _feed(rung, folder, shards)

        assert images.shape == (rung.batch_size, 3, 24, 24)
        assert images.dtype == (torch.float32 if rung.amp == "off" else torch.bfloat16)
        assert labels.shape == (rung.batch_size,)
        assert -2.2 < float(images.min()) < float(images.max()) < 2.7
    assert multiprocessing.active_children() == []


def test_feeds_do_not_end(folder: Path, shards: Path) -> None:
    """A feed goes on behind the data set's end; each image comes once before any comes twice."""
    for name in ("ImageFolder", "fastdata"):
        rung = Rung(name="", adds="", batch_size=1, workers=0, loader=name)
        feed = open_feed(rung, folder=folder, packed=shards, size=8, device=CPU)
        labels = [int(labels) for _, labels in itertools.islice(feed, 46)]
        feed.close()

        assert sorted(labels[:23]) == sorted(labels[23:]) == sorted(n % 3 for n in range(23))


def test_image_that_imagefolder_cannot_read(folder: Path, shards: Path, tmp_path: Path) -> None:
    """Where fastdata would skip a bad file, the plain DataLoader's error says what to do."""
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant/bad.jpg").write_bytes(b"no image")
    for workers in (0, 1):
        rung = Rung(name="", adds="", batch_size=1, workers=workers)
        feed = open_feed(rung, folder=tmp_path, packed=shards, size=8, device=CPU)
        with pytest.raises(OptionError, match=r"fails on an image .* remove the image"):
            next(feed)


# What is measured


def test_every_rung_has_its_figures(report: LadderReport) -> None:
    """On a CPU every rung is measured but those that only CUDA has, which say so."""
    for item in report.rungs:
        if item.rung.needs_cuda:
            assert item.figures is None
            assert item.left_out == "it needs CUDA; this is cpu"
            continue
        found = item.figures
        assert found is not None, item.left_out
        assert found.steps == 2
        assert 0 < found.step_seconds[0] <= found.step_seconds[1] <= found.step_seconds[2]
        assert found.share == found.images_per_second / found.resident_images_per_second > 0
        assert found.cpu_share > 0
        assert found.peak_memory_bytes > 1 << 20
        assert found.gpu_utilization is found.sm_activity is found.tensor_activity is None


def test_report_is_json(report: LadderReport) -> None:
    """The whole report survives the way through JSON."""
    found = json.loads(json.dumps(dataclasses.asdict(report)))

    assert len(found["rungs"]) == 11
    assert (found["samples"], found["classes"]) == (23, 3)
    assert found["rungs"][0]["rung"]["name"] == "plain"


def test_packed_images_are_exported_for_the_lower_rungs(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packed data set is read by the upper rungs as it is, and by the lower ones as a folder."""
    _only(monkeypatch, "plain")
    done = climb(shards, work=tmp_path / "work")

    assert done.packed == str(shards)
    assert len(list(Path(done.folder).rglob("*.jpg"))) == 23
    assert done.rungs[0].figures is not None


def test_second_ladder_takes_what_is_there(
    report: LadderReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images are packed once."""
    kept = {path: path.stat().st_mtime_ns for path in Path(report.packed).iterdir()}
    monkeypatch.setattr("fastdata.bench.run.rungs", lambda **_: rungs(batch_size=8, workers=1)[:1])
    again = climb(Path(report.path), work=report.work)

    assert again.packed == report.packed
    assert {path: path.stat().st_mtime_ns for path in Path(report.packed).iterdir()} == kept


def test_without_a_compiler_that_rung_is_left_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing compiles, the rung is left out with the compiler's reason."""
    _only(monkeypatch, "compile")

    def missing(*_: object) -> None:
        raise RuntimeError("no working C++ compiler found")

    monkeypatch.setattr("fastdata.bench.run.torch.compile", lambda _, **__: missing)
    settings = LadderSettings(size=32, batch_size=8, workers=1, device="cpu")
    done = ladder(folder, settings, work=tmp_path / "work")

    assert done.rungs[0].left_out == "nothing compiles here: no working C++ compiler found"


def test_device_that_is_too_small_leaves_a_rung_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rung that does not fit the device's memory has no figures, and the others have theirs."""
    _only(monkeypatch, "plain")

    def full(*_: object, **__: object) -> None:
        raise OptionError("too little memory") from torch.OutOfMemoryError()

    monkeypatch.setattr(TrainStep, "warm_up", full)

    assert climb(folder, work=tmp_path / "work").rungs[0].left_out == "too little memory"


def test_rung_whose_worker_dies_is_a_row(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row says what workers most often lack, and the rungs after it are measured."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    _only(monkeypatch, "workers", "fastdata")
    monkeypatch.setattr("torchvision.datasets.ImageFolder.__getitem__", die)
    saved: list[LadderReport] = []
    found = climb(folder, work=tmp_path / "work", save=saved.append)
    lost, measured = found.rungs

    assert lost.figures is None
    assert re.search(r"lost one of its 1 workers .*; .* /dev/shm, .* MiB", lost.left_out)
    assert measured.figures is not None
    assert [len(report.rungs) for report in saved] == [1, 2]
    assert saved[-1] == found


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"model": "resnet81"}, "unknown model 'resnet81'"),
        ({"batch_size": 24}, "23 images make no batch of 24"),
        ({"batch_size": 0}, "batch_size"),
        ({"workers": 0}, "workers must be 1 or more"),
        ({"steps": 0}, "steps must be 1 or more"),
        ({"seconds": -1.0}, "seconds must be a positive number"),
        ({"device": "cuda:99"}, "cuda:99"),
    ],
)
def test_bad_options(folder: Path, tmp_path: Path, options: dict[str, Any], text: str) -> None:
    """Each argument out of range is one error, before anything is written."""
    with pytest.raises(OptionError, match=text):
        climb(folder, work=tmp_path / "work", **options)

    assert not (tmp_path / "work").exists()


def test_no_data(tmp_path: Path) -> None:
    """A path with nothing there is one error."""
    with pytest.raises(NotADatasetError):
        climb(tmp_path / "none")


# The command line


def _run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", *arguments])


def test_ladder_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command prints one line of JSON, and leaves JSON and a page in the working folder."""
    _only(monkeypatch, "fastdata")
    work = tmp_path / "work"
    result = _run(
        "ladder", str(folder), "--work", str(work), "--model", "squeezenet1_1", "--size", "32",
        "--batch-size", "8",
        "--workers", "1", "--steps", "1", "--device", "cpu", "--json",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed == json.loads((work / "ladder.json").read_text())
    assert printed["rungs"][0]["figures"]["steps"] == 1
    assert "fastdata" in (work / "ladder.html").read_text()


@pytest.mark.parametrize(("at_least", "code"), [("0", 0), ("1", 1)])
def test_ceiling_command(
    shards: Path, at_least: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's exit code says whether the share that was asked for was reached."""
    from fastdata.train.ceiling import measure_ceiling

    def lower(*arguments: Any, **options: Any) -> Any:
        return dataclasses.replace(measure_ceiling(*arguments, **options), share=0.5)

    monkeypatch.setattr("fastdata.bench.ceiling.measure_ceiling", lower)
    result = _run(
        "ceiling", str(shards), "--size", "32", "--batch-size", "4", "--threads", "1",
        "--model", "squeezenet1_1", "--seconds", "0.5", "--device", "cpu", "--at-least", at_least,
    )  # fmt: skip

    assert result.exit_code == code, result.output
    assert "50.0%" in result.output
    assert ("below the required" in result.output) == bool(code)
