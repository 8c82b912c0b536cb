"""Bad samples at load time: an error by default, or replaced, counted and written down."""

import json
from itertools import chain
from pathlib import Path

import pytest
import torch

import fastdata as fd
from fastdata.dataset import manifest
from fastdata.errors import BudgetError, OptionError, SampleError, ShardError
from fastdata.loaders.readers.packed import open_source
from fastdata.loaders.replace import IN_A_ROW

_CROP = fd.RandomResizedCrop(16, flip=0.5)


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
    with fd.Loader(path, 4, crop=_CROP, threads=2, **options) as loader:  # type: ignore[arg-type]
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
    options = {"on_error": fd.Replace(quarantine=log)}

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
        on_error=fd.Replace(0.01, tmp_path / "q.jsonl"),
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
    options = {"on_error": fd.Replace(quarantine=tmp_path / "q.jsonl")}

    native = _ids(source, **options)
    monkeypatch.setattr("fastdata.native.load", lambda: None)

    assert _ids(source, **options) == native
    assert all(2 not in batch for batch in native)


def test_too_many_are_an_error(packed: Path, tmp_path: Path) -> None:
    """Over the budget, or with too many in a row, the run ends and says where the list is."""
    log = tmp_path / "q.jsonl"
    _damage(packed, [1, 2, 3])
    with pytest.raises(BudgetError, match=r"q\.jsonl"):
        _ids(packed, on_error=fd.Replace(0.0001, log))

    _damage(packed, [0, *range(4, 23)])
    with pytest.raises(BudgetError, match=f"{IN_A_ROW} in a row"):
        _ids(packed, on_error=fd.Replace(1.0, log))


def test_a_missing_shard_is_never_replaced(packed: Path, tmp_path: Path) -> None:
    """What is damaged there is the data set, and not a sample."""
    replacing = fd.Replace(quarantine=tmp_path / "q.jsonl")
    with fd.Loader(packed, 4, crop=_CROP, on_error=replacing, threads=1) as loader:
        (packed / "shard-000000.tar").unlink()
        with pytest.raises(ShardError, match="shard-000000"):
            list(loader)


def test_the_list_is_in_memory_too(packed: Path, tmp_path: Path) -> None:
    """What the file lists is what the loader lists; no file appears before there is a line."""
    log = tmp_path / "q.jsonl"
    with fd.Loader(packed, 23, crop=_CROP, on_error=fd.Replace(quarantine=log)) as loader:
        assert not log.exists()
        _damage(packed, [5, 9])
        list(loader)

        assert [json.loads(line) for line in log.read_text().splitlines()] == [*loader.quarantined]
        assert len(loader.quarantined) == loader.replaced >= 2


def test_a_file_that_was_named_must_be_writable(packed: Path, tmp_path: Path) -> None:
    """Where it cannot be, making the loader is an error that names it and the option."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "q.jsonl", tmp_path / "none" / "q.jsonl", tmp_path):
        with pytest.raises(OptionError, match=rf"{path} cannot be written .*quarantine="):
            fd.Loader(packed, 4, crop=_CROP, on_error=fd.Replace(quarantine=path))


@pytest.mark.parametrize("kind", ["proc", "folder", "link"])
def test_a_read_only_working_directory(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The run goes on with one warning, and the list is in memory; links are not followed."""
    place = Path("/proc") if kind == "proc" else tmp_path / "place"
    place.mkdir(exist_ok=True)
    if kind == "folder":
        (place / "quarantine.jsonl").mkdir()
    elif kind == "link":
        (place / "quarantine.jsonl").symlink_to(tmp_path / "target")
    _damage(packed, [5])
    monkeypatch.chdir(place)

    message = r"quarantine\.jsonl cannot be written .*quarantine="
    with pytest.warns(RuntimeWarning, match=message) as warned:
        loader = fd.Loader(packed, 23, crop=_CROP, on_error=fd.Replace())
    with loader:
        assert [len(batch.ids) for batch in loader] == [23]
        (line,) = loader.quarantined

    assert len(warned) == 1
    assert "checksum" in str(line["error"])
    assert not (tmp_path / "target").exists()


def test_a_disk_that_fills_up(packed: Path, tmp_path: Path) -> None:
    """A file that cannot be written any more costs a warning, not the run."""
    log = tmp_path / "q.jsonl"
    _damage(packed, [5, 9])
    with fd.Loader(packed, 23, crop=_CROP, on_error=fd.Replace(quarantine=log)) as loader:
        log.mkdir()
        with pytest.warns(RuntimeWarning, match=r"q\.jsonl cannot be written") as warned:
            list(loader)

        assert len(warned) == 1
        assert len(loader.quarantined) == loader.replaced >= 2


def test_each_rank_has_a_file(packed: Path, tmp_path: Path) -> None:
    """Ranks list what each of them replaced; together it is what one alone replaces."""
    _damage(packed, [0, 5, 9, 13])
    keys: list[set[str]] = []
    for world_size in (1, 2):
        log = tmp_path / f"{world_size}.jsonl"
        for rank in range(world_size):
            with fd.Loader(
                packed, 4, crop=_CROP, shuffle=False, on_error=fd.Replace(quarantine=log),
                ranks=fd.Ranks(rank, world_size),
            ) as loader:  # fmt: skip
                list(loader)
        files = sorted(tmp_path.glob(f"{world_size}*.jsonl"))
        assert len(files) == world_size
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        keys.append({line["key"] for line in lines})

    assert (tmp_path / "2.rank0.jsonl").exists()
    assert keys[0] == keys[1]
