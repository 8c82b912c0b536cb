"""Bad samples at load time: an error by default, or replaced, counted and written down."""

import json
from itertools import chain
from pathlib import Path

import pytest
import torch

import fastdata as fd
from fastdata import manifest
from fastdata.errors import BudgetError, SampleError, ShardError
from fastdata.loaders.open_source import open_source
from fastdata.loaders.replace import IN_A_ROW

_CROP = fd.RandomResizedCrop(16)


def _damage(path: Path, samples: list[int]) -> None:
    """Flip a byte in the image of each of these samples of a folder of shards."""
    source = open_source(path)
    for row in source.rows(samples):  # type: ignore[arg-type]
        name = manifest.load(path).shards[row["shard"]].name
        data = bytearray((path / name).read_bytes())
        data[row["offset"] + row["length"] // 2] ^= 0x10
        (path / name).write_bytes(data)


@pytest.fixture
def packed(folder: Path, tmp_path: Path) -> Path:
    """Shards of the 23 images."""
    fd.pack(folder, tmp_path / "set", shard_size=15_000)
    return tmp_path / "set"


def _ids(path: Path, **options: object) -> list[list[int]]:
    with fd.Loader(path, 4, crop=_CROP, flip=0.5, threads=2, **options) as loader:  # type: ignore[arg-type]
        return [batch.ids.tolist() for _ in range(2) for batch in loader]


def test_by_default_a_bad_sample_is_an_error(packed: Path) -> None:
    """Its key and the data set are named, and no pixel of it is handed out."""
    key = open_source(packed).keys([5])[0]  # type: ignore[arg-type]
    _damage(packed, [5])

    with pytest.raises(SampleError, match=key):
        _ids(packed)


def test_bad_samples_are_replaced(packed: Path, tmp_path: Path) -> None:
    """Every other place stays as it was; substitutes are good, deterministic, and written down."""
    before = _ids(packed)
    keys = open_source(packed).keys([5, 9])  # type: ignore[arg-type]
    _damage(packed, [5, 9])
    log = tmp_path / "quarantine.jsonl"
    options = {"on_error": "replace", "quarantine": log}

    after = _ids(packed, **options)

    for old, new in zip(chain(*before), chain(*after), strict=True):
        assert new not in (5, 9)
        assert old in (5, 9) or old == new
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) >= sum(batch.count(5) + batch.count(9) for batch in before)
    assert {line["key"] for line in lines} <= set(keys)
    assert all("checksum" in line["error"] for line in lines)
    assert _ids(packed, **options, prefetch=0) == after


@pytest.mark.parametrize("views", [1, 2])
def test_substitutes_are_real_samples(packed: Path, tmp_path: Path, views: int) -> None:
    """A substitute's pixels and label are those of the sample that its id names."""
    _damage(packed, list(range(0, 23, 2)))
    with fd.Loader(
        packed,
        23,
        crop=_CROP,
        views=views,
        shuffle=False,
        on_error="replace",
        error_budget=0.01,
        quarantine=tmp_path / "q.jsonl",
    ) as loader:
        (batch,) = loader
        assert loader.replaced >= 12
    numbers = [int(key.rpartition("/")[2]) for key in batch.keys]
    for view in batch.views:
        gray = torch.tensor([10.0 * number for number in numbers])
        assert torch.all((view.float().mean((1, 2, 3)) - gray).abs() < 2)
    assert batch.labels.tolist() == [number % 3 for number in numbers]


def test_folders_and_opencv_replace_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file of a plain folder is replaced, with the native core and without it."""
    source = tmp_path / "images"
    for number in range(6):
        (source / "ant").mkdir(parents=True, exist_ok=True)
        data = (folder / "ant" / "003.jpg").read_bytes()
        (source / "ant" / f"{number}.jpg").write_bytes(data if number != 2 else data[:200])
    options = {"on_error": "replace", "quarantine": tmp_path / "q.jsonl"}

    native = _ids(source, **options)
    monkeypatch.setattr("fastdata.fill.core", lambda: None)

    assert _ids(source, **options) == native
    assert all(2 not in batch for batch in native)


def test_too_many_are_an_error(packed: Path, tmp_path: Path) -> None:
    """Over the budget, or with too many in a row, the run ends and says where the list is."""
    log = tmp_path / "q.jsonl"
    _damage(packed, [1, 2, 3])
    with pytest.raises(BudgetError, match=r"q\.jsonl"):
        _ids(packed, on_error="replace", error_budget=0.0001, quarantine=log)

    _damage(packed, [0, *range(4, 23)])
    with pytest.raises(BudgetError, match=f"{IN_A_ROW} in a row"):
        _ids(packed, on_error="replace", error_budget=1.0, quarantine=log)


def test_a_missing_shard_is_never_replaced(packed: Path, tmp_path: Path) -> None:
    """What is damaged there is the data set, and not a sample."""
    with fd.Loader(
        packed, 4, crop=_CROP, on_error="replace", quarantine=tmp_path / "q.jsonl", threads=1
    ) as loader:
        (packed / "shard-000000.tar").unlink()
        with pytest.raises(ShardError, match="shard-000000"):
            list(loader)
