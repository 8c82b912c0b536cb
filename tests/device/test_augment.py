"""Augmentation of batches on the device."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import RandomErasing as TheirErasing
from torchvision.transforms import v2

import fastdata as fd
from fastdata.device.augment import RandomErasing
from fastdata.errors import OptionError
from fastdata.loaders.loader import Loader

_IMAGES = 4000
_KS = 1.95 * (2 / _IMAGES) ** 0.5  # Kolmogorov-Smirnov: one in a thousand is further apart


def _loader(path: str | os.PathLike[str], **options: object) -> Loader:
    arguments = {"crop": fd.RandomResizedCrop(16), "threads": 2, "device": "cpu", **options}
    return fd.Loader(path, 4, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"normalize": None}, {"device": None}])
def test_the_hook_changes_what_is_handed_out(shards: Path, options: dict[str, object]) -> None:
    """Each batch passes through it once, as it would have been handed out."""
    with _loader(shards, **options) as loader:
        plain = [(batch.images.clone(), batch.labels) for batch in loader]
    seen = []

    def augment(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append((images.clone(), labels))
        return images.flip(3), labels + 100

    with _loader(shards, **options, augment=augment) as loader:
        found = list(loader)

    assert len(seen) == len(found) == len(plain)
    for batch, given, (images, labels) in zip(found, seen, plain, strict=True):
        assert torch.equal(given[0], images)
        assert given[0].dtype == (torch.uint8 if options else torch.float32)
        assert torch.equal(batch.images, images.flip(3))
        assert torch.equal(batch.views[0], batch.images)
        assert torch.equal(batch.labels, labels + 100)
        assert torch.equal(given[1], labels)


@pytest.mark.parametrize("kind", [v2.MixUp, v2.CutMix])
def test_mixup_and_cutmix_fit_as_they_are(shards: Path, kind: type) -> None:
    """Images are mixed and each class has its share, the same again with the same seed."""
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        with _loader(shards, augment=kind(num_classes=3)) as loader:
            runs.append(list(loader))
    with _loader(shards) as loader:
        plain = list(loader)

    for batch, again, before in zip(*runs, plain, strict=True):
        assert batch.labels.shape == (4, 3)
        assert torch.allclose(batch.labels.sum(1), torch.ones(4))
        assert torch.equal(batch.images, again.images)
        assert torch.equal(batch.labels, again.labels)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert not torch.equal(batch.images, before.images)


def test_a_failing_hook_loses_no_batch(shards: Path) -> None:
    """Its error is raised as it is, and the state stands before the batch that it failed at."""
    calls = []

    def augment(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(labels)
        if len(calls) == 3:
            raise ZeroDivisionError
        return images, labels

    with _loader(shards) as loader:
        expected = [batch.ids.tolist() for batch in loader]
    with _loader(shards, augment=augment) as loader:
        batches = iter(loader)
        found = [next(batches).ids.tolist() for _ in range(2)]
        with pytest.raises(ZeroDivisionError):
            next(batches)
        loader.load_state_dict(loader.state_dict())
        found += [batch.ids.tolist() for batch in loader]

    assert found == expected


@pytest.mark.parametrize("made", [None, torch.zeros(1), (torch.zeros(1),), (torch.zeros(1), 3)])
def test_a_hook_must_return_a_pair(shards: Path, made: object) -> None:
    """What is no pair of tensors is refused with what was found."""
    refused = pytest.raises(OptionError, match=r"augment must return \(images, labels\)")
    with _loader(shards, augment=lambda *_: made) as loader, refused:
        next(iter(loader))


def _boxes(images: torch.Tensor) -> np.ndarray:
    """Top, left, height and width of the zeros in (N, 1, H, W) of ones."""
    gone = images[:, 0] == 0  # (N, H, W)
    sides = [gone.any(2), gone.any(1)]
    starts = [side.int().argmax(1) for side in sides]
    assert torch.equal(gone.sum((1, 2)), sides[0].sum(1) * sides[1].sum(1))  # full rectangles
    return torch.stack([*starts, *(side.sum(1) for side in sides)], 1).numpy()


def test_erasing_is_torchvisions() -> None:
    """Place, sides, area and ratio of the rectangles have the distributions of torchvision's."""
    torch.manual_seed(0)
    ones = torch.ones(_IMAGES, 1, 40, 56)
    ours = _boxes(RandomErasing(p=1.0)(ones, torch.empty(0))[0])
    their = TheirErasing(p=1.0)
    theirs = _boxes(torch.stack([their(image) for image in ones]))

    for boxes in (ours, theirs):  # those few that nothing was erased of have no place
        boxes[boxes[:, 2] == 0] = 0
    area = [boxes[:, 2] * boxes[:, 3] for boxes in (ours, theirs)]
    ratio = [boxes[:, 2] / np.maximum(boxes[:, 3], 1) for boxes in (ours, theirs)]
    pairs = [(ours[:, place], theirs[:, place]) for place in range(4)]
    for one, other in [*pairs, area, ratio]:
        grid = np.union1d(one, other)
        shares = [np.searchsorted(np.sort(x), grid, "right") / _IMAGES for x in (one, other)]
        assert np.abs(shares[0] - shares[1]).max() < _KS


def test_erasing_draws_for_each_image() -> None:
    """A share p of a batch is erased, each image elsewhere, and again as torch's seed says."""
    images = (
        torch.ones(1000, 2, 3, 8, 8).flatten(0, 1).contiguous(memory_format=torch.channels_last)
    )
    labels = torch.arange(2000)
    before = images.clone()
    torch.manual_seed(5)
    found, same = RandomErasing(p=0.3, value=7.0)(images, labels)
    torch.manual_seed(5)
    again, _ = RandomErasing(p=0.3, value=7.0)(images, labels)

    erased = (found == 7).any(1).flatten(1)  # (N, H * W)
    assert same is labels
    assert torch.equal(images, before)
    assert torch.equal(found, again)
    assert abs(erased.any(1).float().mean() - 0.3) < 0.04
    assert len({tuple(row) for row in erased.tolist()}) > 200
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found[:, 0] == 7, found[:, 2] == 7)


def test_erasing_of_odd_batches() -> None:
    """uint8 stays uint8; an empty batch, p = 0 and images too small for a rectangle stay."""
    pixels = torch.full((50, 3, 9, 9), 9, dtype=torch.uint8)
    labels = torch.zeros(50)

    assert set(RandomErasing(p=1.0)(pixels, labels)[0].unique().tolist()) == {0, 9}
    assert torch.equal(RandomErasing(p=0.0)(pixels, labels)[0], pixels)
    assert RandomErasing(p=1.0)(pixels[:0], labels)[0].shape == (0, 3, 9, 9)
    assert torch.equal(RandomErasing(p=1.0)(pixels[..., :1, :1], labels)[0], pixels[..., :1, :1])


@pytest.mark.parametrize(
    "options", [{"p": 1.5}, {"scale": (0.5, 0.2)}, {"scale": (0.1, 1.1)}, {"ratio": (0.0, 1.0)}]
)
def test_erasing_refuses(options: dict[str, object]) -> None:
    """An argument out of range is named."""
    with pytest.raises(OptionError, match=next(iter(options))):
        RandomErasing(**options)  # type: ignore[arg-type]
