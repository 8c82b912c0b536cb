"""A user's function over each image: in our order, on threads or in processes."""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transforms

import fastdata as fd
from fastdata.errors import OptionError, TransformError

_CROP = fd.RandomResizedCrop(16, flip=0.5)

WORKERS = pytest.mark.parametrize("workers", [0, 2], ids=["threads", "processes"])


def _loader(path: Path, **options: Any) -> fd.Loader:
    defaults: dict[str, Any] = {"crop": _CROP, "threads": 2}
    return fd.Loader(path, 5, **(defaults | options))


def _pixels(loader: fd.Loader, epochs: int = 1) -> dict[tuple[int, int], np.ndarray[Any, Any]]:
    """Each image by epoch and id."""
    return {
        (epoch, int(number)): image.permute(1, 2, 0).numpy().copy()
        for epoch in range(epochs)
        for batch in loader
        for number, image in zip(batch.ids, batch.images, strict=True)
    }


@WORKERS
def test_every_image_is_transformed(shards: Path, workers: int) -> None:
    """Order and crops stay; each image is what the function makes of it."""
    with (
        _loader(shards) as plain,
        _loader(shards, transform=transforms.invert, workers=workers) as ours,
    ):
        before, after = _pixels(plain, 2), _pixels(ours, 2)

    assert list(after) == list(before)
    assert all(np.array_equal(after[at], 255 - before[at]) for at in before)


@WORKERS
def test_seeds_are_of_the_sample(shards: Path, workers: int) -> None:
    """A seed depends on seed, epoch and sample: not on workers, batch size or a resume."""
    options = {"transform": transforms.stamp, "workers": workers}
    with _loader(shards, transform=transforms.stamp) as loader:
        expected = _pixels(loader, 2)
    with _loader(shards, **options) as loader:
        list(islice(loader, 2))
        state = loader.state_dict()
    with _loader(shards, **options) as resumed:
        resumed.load_state_dict(state)
        found = _pixels(resumed)

    assert len({image[0, 0].tobytes() for image in expected.values()}) > len(expected) - 2
    assert 0 < len(found) < len(expected) / 2
    assert all(np.array_equal(image, expected[at]) for at, image in found.items())


def test_global_generators_are_seeded_in_processes(shards: Path) -> None:
    """A function that draws from Python's or numpy's own generator is reproducible there."""
    found = []
    for workers in (1, 2):
        with _loader(shards, transform=transforms.draw, workers=workers) as loader:
            found.append(_pixels(loader))

    assert all(np.array_equal(found[1][at], image) for at, image in found[0].items())
    assert len({image[0].tobytes() for image in found[0].values()}) == len(found[0])


@WORKERS
def test_views_differ(shards: Path, workers: int) -> None:
    """Each view of a sample gets a seed of its own."""
    with _loader(shards, transform=transforms.stamp, workers=workers, views=2) as loader:
        first, second = next(iter(loader)).views

    assert (first[:, :, 0, 0] != second[:, :, 0, 0]).any(1).all()


@WORKERS
@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (transforms.fail_on_dark, r"(?s)sample 'ant/000': transform failed.*too dark"),
        (transforms.halve, r"must return a uint8 image of shape \(16, 16, 3\) .* \(8, 16, 3\)"),
    ],
)
def test_errors_name_the_sample(
    shards: Path, transform: Callable[..., Any], text: str, workers: int
) -> None:
    """What the function raises, or returns wrongly, is an error of next() with its traceback."""
    with (
        _loader(shards, transform=transform, workers=workers) as loader,
        pytest.raises(TransformError, match=text),
    ):
        _pixels(loader)


def test_a_worker_that_dies_is_an_error(shards: Path) -> None:
    """The end of a process ends the pass, with its exit code, and does not hang."""
    with (
        _loader(shards, transform=transforms.die, workers=2) as loader,
        pytest.raises(TransformError, match="ended with exit code 7"),
    ):
        next(iter(loader))


def test_close_does_not_wait_for_the_function(shards: Path) -> None:
    """Processes are killed, whatever they are at; none is left."""
    loader = _loader(shards, transform=transforms.sleep, workers=2)
    iter(loader)
    pids = [p._process.pid for p in loader._pipeline._decoder._workers._processes]  # type: ignore[attr-defined]
    loader.close()

    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_function_that_cannot_be_sent(shards: Path) -> None:
    """A local function is refused for processes at once, with what to do."""
    with pytest.raises(OptionError, match="define it at the top of a module"):
        _loader(shards, transform=lambda image, _: image, workers=1)


def test_workers_need_a_transform(shards: Path) -> None:
    """Processes without anything to do are a mistake."""
    with pytest.raises(OptionError, match="workers"):
        _loader(shards, workers=2)
