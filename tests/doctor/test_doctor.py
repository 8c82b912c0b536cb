"""The doctor measures what is there, each stage on its own."""

import dataclasses
import io
import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from jpegs import opencv, scene
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from fastdata.batch.decode import decode_crop
from fastdata.batch.decoder import BatchDecoder, Work
from fastdata.batch.source import Ids
from fastdata.cli.commands import app
from fastdata.converters.pack import pack
from fastdata.doctor import STEPS, Diagnosis, examine
from fastdata.doctor.content import remedies, take
from fastdata.doctor.decoding import decoding_speeds, thread_counts
from fastdata.doctor.device import copying_speed
from fastdata.doctor.render import render
from fastdata.doctor.results import (
    Content,
    Remedy,
)
from fastdata.doctor.storage import FileRange, Files, measure_storage, open_located
from fastdata.errors import NotADatasetError, OptionError, ShardError
from fastdata.plan.crop import CenterCrop, RandomResizedCrop
from fastdata.train.recipe import Recipe


def test_places_are_where_the_samples_lie(dataset: Path) -> None:
    """The bytes at a sample's place are, or hold, the sample that the reader gives."""
    source, place = open_located(dataset)

    for sample in range(len(source)):
        path, offset, size, _ = place(sample)
        assert source.read(sample) in Path(os.fsdecode(path)).read_bytes()[offset : offset + size]


def test_files_read_what_is_there(tmp_path: Path) -> None:
    """A place gives its number of bytes, fewer behind the end; a missing file is an error."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    files = Files()

    assert files.read(FileRange(os.fsencode(path), 10, 20)) == 20
    assert files.read(FileRange(os.fsencode(path), 90, 20, alone=True)) == 10
    files.evict(FileRange(os.fsencode(path), 10, 20))
    with pytest.raises(ShardError, match=r"none: cannot read: No such file"):
        files.read(FileRange(os.fsencode(tmp_path / "none"), 0, 1))
    files.close()


def test_files_stay_open_only_as_long_as_asked(tmp_path: Path) -> None:
    """Whatever was read, closing leaves no descriptor behind."""
    before = len(os.listdir("/proc/self/fd"))
    files = Files()
    for number in range(300):
        path = tmp_path / str(number)
        path.write_bytes(b"12345")
        for alone in (False, True):
            assert files.read(FileRange(os.fsencode(path), 0, 5, alone)) == 5
    files.close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_storage_reads_samples_of_the_data_set(dataset: Path) -> None:
    """Both ways of reading give bytes of different samples, the number stated or more."""
    source, place = open_located(dataset)

    storage, ids = measure_storage(source, place, threads=2, seconds=0.05, size=123)

    assert len(set(ids.tolist())) == len(ids) >= 12
    assert set(ids.tolist()) <= set(range(23))
    mean = source.rows(np.arange(23))["length"].mean()
    for found in filter(None, (storage.cold, storage.warm)):
        assert found.bytes_per_second / found.images_per_second == pytest.approx(mean, rel=0.3)
    assert storage.bytes == 123
    assert storage.fits


def test_content_is_what_the_images_are(tmp_path: Path) -> None:
    """Shares of formats, runs and progressive files count the images that are so."""
    pixels = scene(64, 48)
    _save(tmp_path, pixels, a={"format": "PNG"}, b={"format": "JPEG"})
    _save(tmp_path, pixels, c={"format": "JPEG", "progressive": True})
    _save(tmp_path, pixels, d={"format": "JPEG", "restart_marker_blocks": 2})
    source, _ = open_located(tmp_path)

    resident, content = take(source, np.arange(4), seconds=10)

    assert content == Content(4, content.bytes, 48, jpeg=0.75, runs=0.25, progressive=0.25)
    assert content.bytes == np.mean([path.stat().st_size for path in tmp_path.iterdir()])
    assert [resident.read(i) for i in range(4)] == [source.read(i) for i in range(4)]
    resident.close()


def test_resident_samples_decode_to_the_same_pixels(dataset: Path) -> None:
    """From memory, the loader's own code gives the pixels that the encoded bytes have."""
    source, _ = open_located(dataset)
    ids: Ids = np.array([5, 3, 22])
    resident, _ = take(source, ids, seconds=10)
    crop = CenterCrop(16, resize=20)
    out = np.empty((3, 16, 16, 3), np.uint8)
    filler = BatchDecoder(resident, crop, seed=0, threads=2, ahead=1)

    filling = filler.submit(Work(0, np.arange(3), np.arange(3)), out)

    assert filling.wait(240)
    assert filling.failures() == {}
    filler.close()
    resident.close()
    for place, sample in enumerate(ids.tolist()):
        data, wanted = source.read(sample), np.empty((16, 16, 3), np.uint8)
        width, height = Image.open(io.BytesIO(data)).size
        plan = crop.plan(np.array([[width, height]]), np.zeros(1, np.int64), seed=0, epoch=0)
        decode_crop(data, plan, 0, wanted)
        np.testing.assert_allclose(out[place].astype(int), wanted, atol=2)


def test_thread_counts() -> None:
    """Powers of two, all cores, and the loader's own number."""
    assert thread_counts(1, 1) == [1]
    assert thread_counts(2, 1) == [1, 2]
    assert thread_counts(16, 14) == [1, 2, 4, 8, 14, 16]
    assert thread_counts(6, 24) == [1, 2, 4, 6, 24]


def test_decoding_has_a_speed_for_each_number_of_threads(shards: Path) -> None:
    """Speeds come in the order of the numbers of threads."""
    source, _ = open_located(shards)
    resident, _ = take(source, np.arange(23), seconds=10)

    found = decoding_speeds(resident, RandomResizedCrop(16), [1, 3], seconds=0.05)

    assert [speed.threads for speed in found] == [1, 3]
    assert all(speed.images_per_second > 0 for speed in found)
    resident.close()


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Six large plain JPEGs in a folder whose name the shell would split."""
    root = tmp_path / "my photos"
    root.mkdir()
    for number in range(6):
        (root / f"{number}.jpg").write_bytes(opencv(scene(400, 300 + number)))
    return root


def _commands(path: Path, crop: RandomResizedCrop) -> dict[str, Remedy]:
    source, _ = open_located(path)
    resident, content = take(source, np.arange(len(source)), seconds=10)
    found = remedies(str(path), resident, content, crop, threads=2, seconds=0.1)
    resident.close()
    return {remedy.command: remedy for remedy in found}


@pytest.mark.usefixtures("native_core")
def test_remedies_fit_the_images(photographs: Path, tmp_path: Path) -> None:
    """Plain large JPEGs are packed with runs and resized; what has runs and the size, no more."""
    plain, resized = (
        f"fastdata pack '{photographs}' DST",
        f"fastdata pack '{photographs}' DST --resize 73",
    )
    crop = RandomResizedCrop(64)

    found = _commands(photographs, crop)

    assert list(found) == [plain, resized]
    assert found[resized].bytes < 0.5 < found[plain].bytes
    arguments = shlex.split(resized)[2:]
    assert arguments == [str(photographs), "DST", "--resize", "73"]
    packed = tmp_path / "packed"
    pack(photographs, packed, resize="73")
    assert _commands(packed, crop) == {}


@pytest.mark.usefixtures("native_core")
def test_images_that_are_no_jpegs_may_become_some(tmp_path: Path) -> None:
    """For PNG the remedy is JPEG, and the note says what that does."""
    _save(tmp_path, scene(60, 50), a={"format": "PNG"}, b={"format": "PNG"})

    ((command, remedy),) = _commands(tmp_path, RandomResizedCrop(64)).items()

    assert command.endswith("DST --format jpeg")
    assert "quality 90" in remedy.note


def test_nothing_is_copied_on_the_cpu(shards: Path) -> None:
    """Copying is a stage of CUDA alone."""
    settings = examine(
        shards, Recipe(size=32), with_model=False, device="cpu", threads=1, seconds=0.02
    ).measured.settings

    assert copying_speed(settings, seconds=0.01) is None


# The whole of it


def test_a_diagnosis_of_each_kind_of_data_set(dataset: Path) -> None:
    """Folder, shards and LMDB, smaller than a batch, are measured through all their stages."""
    seen: list[tuple[str, int]] = []

    found = examine(
        dataset,
        Recipe(size=32, batch_size=64),
        device="cpu",
        threads=1,
        seconds=0.05,
        progress=lambda name, done: seen.append((name, done)),
    )

    assert [name for name, _ in seen] == [*STEPS, ""]
    assert [done for _, done in seen] == list(range(len(STEPS) + 1))
    assert set(found.stages) == {"storage", "decoding", "Python", "model"}
    assert all(speed > 0 for speed in found.stages.values())
    assert 0 < found.expected <= min(found.stages.values())
    assert found.measured.samples == 23
    again = json.loads(json.dumps(dataclasses.asdict(found)))
    assert again["measured"]["settings"]["path"] == str(dataset)
    assert found.summary in _printed(found).replace("\n", " ")


def test_without_the_native_core(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where OpenCV decodes, the same is measured, but for the remedies that need the core."""
    monkeypatch.setattr("fastdata.native.load", lambda: None)

    found = examine(
        shards, Recipe(size=32), with_model=False, device="cpu", threads=1, seconds=0.02
    )

    assert set(found.stages) == {"storage", "decoding", "Python"}
    assert any("native core was not built" in warning for warning in found.warnings)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_diagnosis_on_a_gpu(shards: Path) -> None:
    """On CUDA the copy is a stage of its own, and stages run beside each other."""
    recipe = Recipe(size=32, amp="bf16", channels_last=True)
    found = examine(shards, recipe, device="cuda", seconds=0.1)

    assert set(found.stages) == {"storage", "decoding", "Python", "copying", "model"}
    assert found.expected == min(found.stages.values())
    assert "dtype=torch.bfloat16" in found.loader


def test_the_command_prints_the_line_for_the_loader(shards: Path) -> None:
    """The table comes first, then one line of Python, which is not wrapped."""
    arguments = ["doctor", str(shards), "--seconds", "0.02", "--size", "32", "--model", "none"]

    result = CliRunner().invoke(app, [*arguments, "--device", "cpu", "--apply"])

    assert result.exit_code == 0, result.output
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith(
        f"loader = fd.Loader({str(shards)!r}, 64, crop=fd.RandomResizedCrop(32, "
    )
    assert "decoding, 1 thread" in result.stdout


def test_the_command_prints_json(folder: Path) -> None:
    """With --json stdout is one object, which says what limits."""
    arguments = ["doctor", str(folder), "--seconds", "0.02", "--size", "32", "--model", "none"]

    result = CliRunner().invoke(app, [*arguments, "--device", "cpu", "--json"])

    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["limit"] in content["stages"]
    assert content["loader"].startswith("loader = fd.Loader(")
    assert content["share"] is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"seconds": 0}, "seconds must be a positive number"),
        ({"model": "resnet19"}, "unknown model 'resnet19'"),
        ({"amp": "fp8"}, "amp must be one of"),
        ({"device": "cuda:77"}, "cuda:77"),
        ({"batch_size": 0}, "batch_size"),
        ({"threads": 0}, "threads must be from 1 to"),
    ],
)
def test_bad_arguments(shards: Path, arguments: dict[str, object], error: str) -> None:
    """What cannot be measured is refused in a sentence that names it."""
    names = {field.name for field in dataclasses.fields(Recipe)} & arguments.keys()
    switches = {"size": 32} | {name: arguments[name] for name in names}
    given = {name: value for name, value in arguments.items() if name not in names}
    given = {"device": "cpu", "seconds": 0.02, "with_model": "model" in names, **given}

    with pytest.raises(OptionError, match=error):
        examine(shards, Recipe(**switches), **given)  # type: ignore[arg-type]


def test_a_path_without_data(tmp_path: Path) -> None:
    """A path that holds nothing is no data set."""
    with pytest.raises(NotADatasetError, match="no such file"):
        examine(tmp_path / "none", device="cpu", seconds=0.02)


def _printed(found: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=1000)
    console.print(render(found))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _save(root: Path, pixels: np.ndarray, **files: dict[str, object]) -> None:
    for name, options in files.items():
        suffix = str(options["format"]).lower()
        Image.fromarray(pixels).save(root / f"{name}.{suffix}", **options)  # type: ignore[arg-type]
