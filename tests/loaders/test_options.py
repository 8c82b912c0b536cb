"""Choosing samples: subsets, weights, views, repeats, windows, mixes."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata as fd
from fastdata.errors import OptionError
from fastdata.loaders.loader import Loader

_CROP = fd.RandomResizedCrop(16, flip=0.5)


def _loader(path: Path | fd.Mix, batch_size: int = 4, **options: Any) -> Loader:
    arguments: dict[str, Any] = {"crop": _CROP, "threads": 2, **options}
    return fd.Loader(path, batch_size, **arguments)


def _ids(path: Path | fd.Mix, batch_size: int = 4, **options: Any) -> list[int]:
    with _loader(path, batch_size, **options) as loader:
        return [number for batch in loader for number in batch.ids.tolist()]


def test_where_takes_a_question(dataset: Path) -> None:
    """A function of the rows, booleans and ids choose the same samples."""
    with _loader(dataset) as loader:
        labels = loader.source.labels()
    bees = np.flatnonzero(labels == 1)

    for where in (lambda rows: rows["label"] == 1, labels == 1, bees, bees.tolist()):
        assert sorted(_ids(dataset, sampling=fd.Sampling(where), drop_last=False)) == bees.tolist()


def test_a_subset_changes_no_crop(shards: Path) -> None:
    """The pixels of a sample are the same in a subset as in the whole."""
    with _loader(shards, 23) as loader:
        (whole,) = loader
    with _loader(shards, 5, sampling=fd.Sampling(np.arange(7, 12))) as loader:
        (part,) = loader

    places = [whole.ids.tolist().index(number) for number in part.ids.tolist()]
    assert torch.equal(part.images, whole.images[places])


def test_views_differ_and_belong_together(dataset: Path) -> None:
    """Each view is the same samples, cropped anew; the first is what a single view would be."""
    with _loader(dataset, drop_last=False) as loader:
        single = [batch.images.clone() for batch in loader]
    with _loader(dataset, drop_last=False, views=3) as loader:
        for alone, batch in zip(single, loader, strict=True):
            count = len(batch.ids)
            assert torch.equal(batch.views[0], alone)
            assert batch.images.shape == (3 * count, 3, 16, 16)
            assert [len(view) for view in batch.views] == [count] * 3
            assert len(batch.labels) == len(batch.valid) == count
            assert torch.equal(torch.cat(batch.views), batch.images)


def test_views_have_distinct_crops(tmp_path: Path) -> None:
    """On an image with a gradient, the views of a sample are different parts."""
    import cv2

    ramp = np.tile(np.arange(0, 256, dtype=np.uint8)[None, :, None], (256, 1, 3))
    for name in ("a", "b"):
        cv2.imwrite(str(tmp_path / f"{name}.png"), ramp)
    with _loader(tmp_path, 2, views=2, sampling=fd.Sampling(repeats=2)) as loader:
        crops = [view.unbind() for batch in loader for view in batch.views]

    flat = [crop for views in crops for crop in views]
    assert len({crop.numpy().tobytes() for crop in flat}) == len(flat) == 8


def test_repeats_share_a_batch(shards: Path) -> None:
    """Repeated augmentation puts a sample's copies into one global batch, on any world size."""
    twice = fd.Sampling(repeats=2)
    ranks = [_loader(shards, 4, sampling=twice, ranks=fd.Ranks(rank, 2)) for rank in range(2)]
    for parts in zip(*ranks, strict=True):
        counts = Counter(number for part in parts for number in part.ids.tolist())
        assert set(counts.values()) == {2}
    for loader in ranks:
        loader.close()


def test_weights_by_class(shards: Path) -> None:
    """Classes come as their weights say; one of weight 0 never, and ranks stay equal."""
    sampling = fd.Sampling(weights={"ant": 3.0, "bee": 0.0, "cat": 1.0}, draws=400)
    per_rank = []
    for rank in range(2):
        with _loader(shards, sampling=sampling, ranks=fd.Ranks(rank, 2)) as loader:
            per_rank.append([int(x) for batch in loader for x in batch.labels])
    counts = Counter(per_rank[0] + per_rank[1])

    assert len(per_rank[0]) == len(per_rank[1]) == 200
    assert set(counts) <= {0, 2}
    weight = 3 * 8 / (3 * 8 + 7)  # of the 23 images 8 are ants and 7 are cats
    assert abs(counts[0] / 400 - weight) < 0.07


def test_mixes_keep_their_shares(shards: Path, lmdb_file: Path, tmp_path: Path) -> None:
    """An epoch of a mix has each data set's share to one sample, with its pixels and classes."""
    mix = fd.Mix({shards: 3, lmdb_file: 1})
    with _loader(mix, 5, sampling=fd.Sampling(draws=40)) as loader:
        assert loader.source.classes == ("ant", "bee", "cat")
        for epoch in range(2):
            seen = []
            for batch in loader:
                numbers = [int(key.rpartition("/")[2]) for key in batch.keys]
                gray = torch.tensor([10.0 * number for number in numbers])
                assert torch.all((batch.images.float().mean((1, 2, 3)) - gray).abs() < 2)
                assert batch.labels.tolist() == [number % 3 for number in numbers]
                seen += batch.ids.tolist()
            from_shards = Counter(number for number in seen if number < 23)
            assert sum(from_shards.values()) == 30, epoch
            assert max(from_shards.values()) - min(from_shards.values()) <= 1
        assert max(Counter(n for n in seen if n >= 23).values()) == 1
        state = loader.state_dict()
    other = _loader(fd.Mix({shards: 1, lmdb_file: 1}), 5, sampling=fd.Sampling(draws=40))
    with other, pytest.raises(fd.errors.StateError, match="fingerprint"):
        other.load_state_dict(state)


def test_mixed_classes_are_joined_by_name(folder: Path, shards: Path, tmp_path: Path) -> None:
    """A class of two data sets is one class; others are added behind."""
    other = tmp_path / "images"
    for old, new in (("bee", "bee"), ("cat", "dog")):
        (other / new).mkdir(parents=True)
        for path in (folder / old).iterdir():
            (other / new / path.name).write_bytes(path.read_bytes())
    fd.pack(other, tmp_path / "other.lmdb")

    with _loader(fd.Mix({shards: 1, tmp_path / "other.lmdb": 1}), 4) as loader:
        names = loader.source.classes
        assert names == ("ant", "bee", "cat", "dog")
        for batch in loader:
            for key, label in zip(batch.keys, batch.labels.tolist(), strict=True):
                assert names[label] == key.partition("/")[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": fd.Sampling(where=[23])}, "there are 23"),
        ({"sampling": fd.Sampling(where=[0.5])}, "booleans or ids"),
        ({"sampling": fd.Sampling(where=[True])}, "each of 23"),
        ({"sampling": fd.Sampling(where=[])}, "booleans or ids"),
        ({"sampling": fd.Sampling(where=np.zeros(23, bool))}, "leaves no sample"),
        ({"sampling": fd.Sampling(weights={"ant": 1.0})}, "each class once"),
        ({"sampling": fd.Sampling(weights=[1.0])}, "one for each of 23"),
        ({"views": 0}, "views"),
        ({"shuffle": "blocks"}, "shuffle"),
    ],
)
def test_bad_choices(shards: Path, options: dict[str, Any], message: str) -> None:
    """Each choice that cannot be is refused by name before anything starts."""
    with pytest.raises(OptionError, match=message):
        _loader(shards, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fd.Sampling(repeats=0), "repeats"),
        (lambda: fd.Sampling(draws=0), "draws must be 1 or more"),
        (lambda: fd.Replace(budget=1.5), "budget must be a fraction"),
        (lambda: fd.Ranks(2, 2), "rank must lie"),
        (lambda: fd.RandomResizedCrop(8, flip=1.5), "flip is a probability"),
        (lambda: fd.CenterCrop(8, flip=-0.1), "flip is a probability"),
    ],
)
def test_choices_are_checked_when_they_are_made(make: Callable[[], object], message: str) -> None:
    """What cannot be is refused before there is a loader."""
    with pytest.raises(OptionError, match=message):
        make()


def test_bad_mixes(shards: Path, folder: Path) -> None:
    """Shares are positive, and data sets packed."""
    bad: list[dict[Path, float]] = [{}, {shards: 0.0}, {shards: float("nan")}, {folder: 1.0}]
    for shares in bad:
        with pytest.raises(OptionError):
            _loader(fd.Mix(shares))
