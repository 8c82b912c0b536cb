"""A loader goes on exactly where another stood."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastdata as fd
from fastdata.errors import StateError
from fastdata.loaders.loader import Loader
from fastdata.plan.epochs import BatchPlan

_CROP = fd.RandomResizedCrop(16, flip=0.5)
Seen = tuple[list[int], torch.Tensor, list[bool]]


def _loader(path: Path, batch_size: int = 4, **options: Any) -> Loader:
    arguments: dict[str, Any] = {"crop": _CROP, "threads": 2, **options}
    return fd.Loader(path, batch_size, **arguments)


def _seen(batch: fd.Batch) -> Seen:
    return batch.ids.tolist(), batch.images.clone(), batch.valid.tolist()


def _equal(found: list[Seen], expected: list[Seen]) -> bool:
    return len(found) == len(expected) and all(
        a[0] == b[0] and torch.equal(a[1], b[1]) and a[2] == b[2]
        for a, b in zip(found, expected, strict=True)
    )


def _two_passes(loader: Loader) -> Iterator[tuple[Seen, dict[str, Any]]]:
    """Every batch of two epochs, and the state behind it, by way of JSON."""
    for _ in range(2):
        for batch in loader:
            yield _seen(batch), json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop_last": False, "prefetch": 0},
        {"views": 2, "sampling": fd.Sampling(repeats=2)},
        {"sampling": fd.Sampling(weights={"ant": 1.0, "bee": 2.0, "cat": 0.0})},
        {"sampling": fd.Sampling(np.arange(3, 20), draws=30)},
        {"shuffle": "window", "threads": 1},
        {"shuffle": False},
    ],
    ids=str,
)
def test_every_state_resumes(shards: Path, options: dict[str, Any]) -> None:
    """From each state the rest of two epochs comes again: ids, pixels, crops, in order."""
    with _loader(shards, **options) as loader:
        before = loader.state_dict()
        run = list(_two_passes(loader))
    tail = [seen for seen, _ in run]

    for done, state in enumerate([before, *(state for _, state in run)]):
        with _loader(shards, **{**options, "threads": 1, "prefetch": 1}) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            rest: list[Seen] = []
            while len(rest) < len(tail) - done:
                rest += map(_seen, loader)
            assert _equal(rest, tail[done:])


@pytest.mark.parametrize("path", ["folder", "shards", "lmdb_file"])
def test_another_process_goes_on(path: str, request: pytest.FixtureRequest) -> None:
    """A fresh process that gets the state as text yields what this one would have."""
    where: Path = request.getfixturevalue(path)
    code = (
        "import json, sys, hashlib, fastdata as fd\n"
        "path, state = sys.argv[1:]\n"
        "with fd.Loader(path, 4, crop=fd.RandomResizedCrop(16, flip=0.5), threads=1) as loader:\n"
        "    loader.load_state_dict(json.loads(state))\n"
        "    for batch in loader:\n"
        "        pixels = batch.images.permute(0, 2, 3, 1).contiguous().numpy()\n"
        "        print(batch.ids.tolist(), hashlib.sha256(pixels).hexdigest())\n"
    )
    with _loader(where) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        state = json.dumps(loader.state_dict())
        here = [f"{b.ids.tolist()} {_digest(b.images)}" for b in batches]
    command = [sys.executable, "-P", "-c", code, str(where), state]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)

    assert done.stdout.splitlines() == here


def _digest(images: torch.Tensor) -> str:
    return hashlib.sha256(images.permute(0, 2, 3, 1).contiguous().numpy().data).hexdigest()


def test_chains_over_worlds_and_batch_sizes(shards: Path) -> None:
    """Gone on with other world and batch sizes, an epoch is still each sample once, in order."""
    with _loader(shards, 23, drop_last=False) as loader:
        (whole,) = [_seen(batch) for batch in loader]
    rng = np.random.default_rng(0)

    for _ in range(12):
        ids: list[int] = []
        pixels: list[torch.Tensor] = []
        state = None
        while state is None or state["epoch"] == 0:
            world, size, steps = (int(rng.integers(1, most)) for most in (5, 5, 3))
            parts, state = _some_steps(shards, state, world, size, steps)
            for part, place in parts:
                ids.append(int(part.ids[place]))
                pixels.append(part.images[place])
        assert ids == whole[0]
        assert torch.equal(torch.stack(pixels), whole[1])


def _some_steps(
    path: Path, state: dict[str, Any] | None, world: int, size: int, steps: int
) -> tuple[list[tuple[fd.Batch, int]], dict[str, Any]]:
    """Valid places of the next global batches in the global order, and the state behind them."""
    found: list[tuple[fd.Batch, int]] = []
    ranks = [
        _loader(path, size, drop_last=False, ranks=fd.Ranks(rank, world)) for rank in range(world)
    ]
    for loader in ranks:
        if state is not None:
            loader.load_state_dict(state)
    for parts in islice(zip(*ranks, strict=True), steps):
        places = range(len(parts[0].ids))
        found += [(part, place) for place in places for part in parts if part.valid[place]]
    states = [loader.state_dict() for loader in ranks]
    assert all(one == states[0] for one in states)
    for loader in ranks:
        loader.close()
    return found, states[0]


def test_what_is_read_ahead_does_not_count(shards: Path) -> None:
    """The state is behind what was handed out, however much was begun beyond it."""
    with _loader(shards, prefetch=4) as loader:
        next(iter(loader))

        assert loader.state_dict()["samples"] == 4


def test_state_at_the_edges(shards: Path) -> None:
    """At the start, after the last batch, after the end, after a break, twice, while iterating."""
    with _loader(shards) as loader:
        assert (loader.state_dict()["epoch"], loader.state_dict()["samples"]) == (0, 0)
        for batch in loader:
            last = batch
        end = loader.state_dict()
        assert (end["epoch"], end["samples"]) == (1, 0)
        assert last.ids.size

        for _ in loader:
            break
        broken = loader.state_dict()
        assert (broken["epoch"], broken["samples"]) == (1, 4)

        running = iter(loader)
        first = next(running)
        loader.load_state_dict(broken)
        loader.load_state_dict(broken)
        with pytest.raises(RuntimeError, match="this pass ended"):
            next(running)
        assert len(list(loader)) == len(loader) - 1
        loader.load_state_dict({**broken, "samples": 0})
        assert np.array_equal(next(iter(loader)).ids, first.ids)


def test_a_rest_too_small_for_a_batch_is_passed_over(shards: Path) -> None:
    """Where a larger batch leaves none of the epoch, the next epoch begins."""
    with _loader(shards, 5) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
    with _loader(shards, 20) as loader:
        loader.load_state_dict(state)

        assert (loader.epoch, len(list(loader))) == (1, 1)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"seed": 1}, "seed"),
        ({"crop": fd.RandomResizedCrop(16, flip=0.1)}, "flip"),
        ({"crop": fd.RandomResizedCrop(17)}, "crop"),
        ({"shuffle": False, "drop_last": True}, "shuffle"),
        ({"sampling": fd.Sampling([1, 2, 3, 4])}, "samples_in_epoch"),
        ({"sampling": fd.Sampling(np.arange(1, 23), draws=23)}, "choice"),
        ({"drop_last": False}, "drop_last"),
        ({"views": 2}, "views"),
    ],
)
def test_other_options_are_named(shards: Path, options: dict[str, Any], field: str) -> None:
    """A state of other options is refused by the field's name, and loads if that is overridden."""
    with _loader(shards) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with _loader(shards, **options) as loader:
        with pytest.raises(StateError, match=rf"has {field} "):
            loader.load_state_dict(state)
        loader.load_state_dict(state, override=list(loader.state_dict().keys() - _PLACE))


_PLACE = {"version", "epoch", "samples"}


def test_other_data_is_refused(shards: Path, folder: Path) -> None:
    """A state belongs to one data set."""
    with _loader(shards) as loader:
        state = loader.state_dict()
    with _loader(folder) as other, pytest.raises(StateError, match="fingerprint"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"samples": -1}, "samples"),
        ({"samples": 24}, "samples is 24"),
        ({"epoch": 1.0}, "epoch"),
        ({"epoch": True}, "epoch"),
        ({"version": np.arange(2)}, "version"),
        ({"fingerprint": np.arange(2)}, "fingerprint"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_odd_states_are_refused(shards: Path, change: dict[str, Any], message: str) -> None:
    """Nothing of a state is believed before it is checked."""
    with _loader(shards) as loader:
        state = {**loader.state_dict(), **change}
        with pytest.raises(StateError, match=message):
            loader.load_state_dict(state)
        with pytest.raises(StateError, match="dictionary"):
            loader.load_state_dict([])  # type: ignore[arg-type]
        with pytest.raises(StateError, match="override"):
            loader.load_state_dict(loader.state_dict(), override=["epochs"])


def _check_plans(count: int) -> None:
    """Random chains of plans: equal ranks, exact cover, one global order."""
    rng = np.random.default_rng(count)
    for _ in range(count):
        samples, drop_last = int(rng.integers(1, 501)), bool(rng.integers(2))
        start, order = 0, []
        while start < samples:
            world, size = int(rng.integers(1, 17)), int(rng.integers(1, 65))
            if start == 0 and drop_last and samples < world * size:
                break
            plans = [BatchPlan(samples, size, drop_last, r, world, start) for r in range(world)]
            steps = len(plans[0])
            assert {len(plan) for plan in plans} == {steps}
            if steps == 0:
                break
            for index in range(int(rng.integers(1, steps + 1))):
                parts = [plan.positions(index) for plan in plans]
                assert len({len(positions) for positions, _ in parts}) == 1
                table = np.stack([positions for positions, _ in parts], axis=1)  # (N, W)
                valid = np.stack([counted for _, counted in parts], axis=1)
                order += table.ravel()[valid.ravel()].tolist()
                start = plans[0].end(index)
                assert len(order) == start
        assert order == list(range(start))
        assert drop_last or start == samples


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_plans_cover_exactly(count: int) -> None:
    """Thousands of chains of resumed plans over changing worlds miss and repeat nothing."""
    _check_plans(count)
