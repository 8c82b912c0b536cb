"""The iterable datasets, alone and under torch's DataLoader."""

import gc
import json
import os
import pickle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset

import fastdata as fd
from fastdata.errors import CatalogError, DecodeError, NotADatasetError, OptionError


def _number(sample: fd.Sample) -> int:
    return int(sample.key.rpartition("/")[2])


def test_samples(dataset: Path) -> None:
    """A sample's pixels, label, key and id belong together; len is exact."""
    samples = list(fd.open(dataset))

    assert len(samples) == len(fd.open(dataset)) == 23
    assert sorted(_number(sample) for sample in samples) == list(range(23))
    for sample in samples:
        number = _number(sample)
        assert sample.image.shape == (40 + number, 60 - number, 3)
        assert sample.image.dtype == np.uint8
        assert abs(sample.image.mean() - 10 * number) < 2
        assert sample.label == number % 3
        assert sample.fields == {}
    assert [sample.id for sample in samples] == list(range(23))


@pytest.mark.parametrize("name", [None, "shards", "images.lmdb"])
def test_encoded_bytes_are_the_files(folder: Path, tmp_path: Path, name: str | None) -> None:
    """Without decoding, a sample's image is the file, to the byte, if a pack was to keep bytes."""
    path = folder
    if name is not None:
        path = tmp_path / name
        fd.pack(folder, path, keep_bytes=True)

    for sample in fd.open(path, decode=False):
        assert sample.image == (folder / f"{sample.key}.jpg").read_bytes()


def test_files_of_a_dropped_data_set(dataset: Path) -> None:
    """A data set that was read and is not held any more leaves no file open, closed or not."""
    before = len(os.listdir("/proc/self/fd"))
    samples = fd.open(dataset)
    assert sum(1 for _ in samples) == 23
    del samples
    gc.collect()

    assert len(os.listdir("/proc/self/fd")) <= before


def test_open_picks_the_reader(folder: Path, shards: Path, lmdb_file: Path) -> None:
    """fd.open gives the reader of what lies there, each a torch IterableDataset."""
    found = [fd.open(path) for path in (folder, shards, lmdb_file)]

    assert [type(d) for d in found] == [fd.FolderDataset, fd.TarDataset, fd.LMDBDataset]
    assert all(isinstance(d, IterableDataset) for d in found)
    assert all(d.source.classes == ("ant", "bee", "cat") for d in found)
    assert found[1].source.fingerprint == fd.TarDataset(shards).source.fingerprint


def test_shuffle_depends_on_seed_and_epoch(dataset: Path) -> None:
    """Each epoch has its own order, which set_epoch brings back."""
    data = fd.open(dataset, shuffle=True, seed=3, decode=False)
    first = [_number(sample) for sample in data]
    data.set_epoch(1)
    second = [_number(sample) for sample in data]
    data.set_epoch(0)

    assert first != second
    assert sorted(first) == sorted(second) == list(range(23))
    assert [_number(sample) for sample in data] == first


def test_reader_and_loader_have_the_same_order(shards: Path) -> None:
    """The reader's order of an epoch is the loader's, with the same seed."""
    data = fd.open(shards, shuffle=True, seed=5, decode=False)
    with fd.Loader(shards, 23, crop=fd.CenterCrop(8), seed=5, threads=1) as loader:
        assert [sample.id for sample in data] == next(iter(loader)).ids.tolist()


@pytest.mark.parametrize("batch_size", [None, 4])
def test_ranks_share_out(dataset: Path, batch_size: int | None) -> None:
    """Over all ranks each sample comes once, and each rank's len is what it yields."""
    seen: list[int] = []
    for rank in range(3):
        data = fd.open(
            dataset, shuffle=True, decode=False, ranks=fd.Ranks(rank, 3), batch_size=batch_size
        )
        items = list(data)
        assert len(data) == len(items)
        seen += [_number(s) for item in items for s in ([item] if batch_size is None else item)]

    assert sorted(seen) == list(range(23))


@pytest.mark.parametrize(
    ("dataset", "context", "persistent"),
    [
        *[(name, "fork", n) for name in ("folder", "shards", "lmdb_file") for n in (False, True)],
        ("shards", "spawn", True),
        *(
            pytest.param(name, "spawn", True, marks=pytest.mark.long)
            for name in ("folder", "lmdb_file")
        ),
    ],
    indirect=["dataset"],
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_dataloader_workers(dataset: Path, context: str, persistent: bool) -> None:
    """Two workers give, over two epochs, exactly the batches that none give, in the same order."""
    options: dict[str, Any] = {"shuffle": True, "batch_size": 4, "decode": False}
    expected = []
    alone = fd.open(dataset, **options)
    for epoch in range(2):
        alone.set_epoch(epoch)
        expected.append([[s.id for s in batch] for batch in DataLoader(alone, batch_size=None)])

    data = fd.open(dataset, **options)
    list(data)  # an environment that is open in the main process must not harm the workers
    workers = DataLoader(
        data,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=context,
        persistent_workers=persistent,
    )
    found = []
    for epoch in range(2):
        data.set_epoch(epoch)
        found.append([[s.id for s in batch] for batch in workers])

    assert found == expected
    assert len(workers) == len(expected[0]) == 6


def test_dataloader_batches_samples(dataset: Path) -> None:
    """Torch's own batching works on samples: collated by field, each sample once."""
    data = fd.open(dataset, transform=_small)
    loader = DataLoader(data, batch_size=5, num_workers=2, multiprocessing_context="fork")
    batches = list(loader)

    assert sum(len(batch.label) for batch in batches) == 23
    assert sorted(i for batch in batches for i in batch.id.tolist()) == list(range(23))
    assert batches[0].image.shape == (5, 8, 8, 3)


def _small(sample: fd.Sample) -> fd.Sample:
    return sample._replace(image=cv2.resize(sample.image, (8, 8)))


def test_transform_may_return_anything(shards: Path) -> None:
    """What a transform returns is what is yielded."""
    data = fd.open(shards, transform=lambda sample: (sample.image.shape[0], sample.label))

    assert {height % 3 for height, label in data if label == 0} == {40 % 3}


def test_rank_reaches_workers(shards: Path) -> None:
    """A rank and an epoch that are known to the main process hold in workers spawned anew."""
    data = fd.open(shards, decode=False, ranks=fd.Ranks(1, 2))
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")

    assert sorted(sample.id for sample in loader) == list(range(1, 23, 2))


def test_pickled_dataset_is_the_same(dataset: Path) -> None:
    """A dataset sent to another process opens the same data there."""
    data = fd.open(dataset, decode=False)

    again = pickle.loads(pickle.dumps(data))  # noqa: S301 - our own bytes

    assert [s.image for s in again] == [s.image for s in data]


def test_replaced_dataset_is_noticed(folder: Path, tmp_path: Path) -> None:
    """A worker that finds another data set under the path says so instead of mixing the two."""
    fd.pack(folder, tmp_path / "a")
    data = pickle.dumps(fd.open(tmp_path / "a"))
    fd.pack(folder, tmp_path / "a", seed=1, overwrite=True)

    with pytest.raises(CatalogError, match="replaced"):
        pickle.loads(data)  # noqa: S301 - our own bytes


def test_two_readers_of_one_lmdb(lmdb_file: Path) -> None:
    """Readers of one LMDB share its environment; closing one does not disturb the other."""
    first, second = fd.open(lmdb_file, decode=False), fd.open(lmdb_file, decode=False)
    iterator = iter(first)
    next(iterator)
    list(second)
    second.source.close()

    assert len(list(iterator)) == 22


def test_truncated_image_is_named(folder: Path, tmp_path: Path) -> None:
    """An image that cannot be decoded is an error that names its key."""
    (tmp_path / "broken.jpg").write_bytes((folder / "ant/000.jpg").read_bytes()[:300])

    with pytest.raises(DecodeError, match="broken"):
        list(fd.open(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"max_pixels": 0}, "max_pixels"),
    ],
)
def test_bad_options(shards: Path, options: Any, message: str) -> None:
    """Each option out of range is refused by name."""
    with pytest.raises(OptionError, match=message):
        fd.open(shards, **options)


def test_missing_path(tmp_path: Path) -> None:
    """A path where nothing lies is an error that names it."""
    with pytest.raises(NotADatasetError, match="nowhere"):
        fd.open(tmp_path / "nowhere")


@pytest.mark.filterwarnings("ignore:.*set_vital")  # torchdata 0.11 on torch 2.15
@pytest.mark.parametrize(("batch_size", "workers"), [(None, 0), (3, 0), (3, 2)])
def test_stateful_dataloader_resumes(
    dataset: Path, tmp_path: Path, batch_size: int | None, workers: int
) -> None:
    """StatefulDataLoader of torchdata saves after any step and another one goes on from there."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def load() -> Any:
        data = fd.open(
            dataset, decode=False, shuffle=True, seed=3, batch_size=batch_size, transform=_key
        )
        data.set_epoch(2)
        return stateful(data, batch_size=None, num_workers=workers)

    whole = list(load())
    for step in (0, 1, len(whole) // 2, len(whole)):
        first = load()
        batches = iter(first)
        seen = [next(batches) for _ in range(step)]
        state = json.loads(json.dumps(first.state_dict()))
        second = load()
        second.load_state_dict(state)
        rest = [] if step == len(whole) else list(second)

        assert seen + rest == whole


def _key(sample: fd.Sample) -> str:
    return sample.key


def test_state_of_another_worker_is_refused(shards: Path) -> None:
    """A reader's state names what does not fit."""
    state = fd.open(shards, seed=1).state_dict()

    with pytest.raises(fd.errors.StateError, match="seed"):
        fd.open(shards, seed=2).load_state_dict(state)
    with pytest.raises(fd.errors.StateError, match="workers"):
        fd.open(shards, seed=1).load_state_dict({**state, "workers": 4})
