"""The reference training run as its users see it."""

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import training
from rich.console import Console

from fastdata.errors import DivergedError, NotADatasetError, OptionError
from fastdata.loaders.readers.folder import FolderSource
from fastdata.train import Progress, Recipe, TrainReport
from fastdata.train.render import render

Make = Callable[..., Path]


def train(path: Path, **options: Any) -> TrainReport:
    """A run that takes a second; switches of the recipe and arguments of the run together."""
    switches = {field.name for field in dataclasses.fields(Recipe)} & options.keys()
    chosen: dict[str, Any] = {"size": 32, "batch_size": 8} | {k: options.pop(k) for k in switches}
    return training.train(path, Recipe(**chosen), **options)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a folder of noisy pictures, each class of a colour of its own."""

    def make(each: int, **options: Any) -> Path:
        return training.colours(tmp_path_factory.mktemp("colours") / "data", each, **options)

    return make


@pytest.fixture(scope="module")
def colours(make: Make) -> Path:
    """48 pictures in 3 classes."""
    return make(16)


@pytest.fixture(scope="module")
def learned(colours: Path, make: Make) -> TrainReport:
    """Four epochs with validation and the ceiling."""
    val = make(7, seed=1)
    return train(colours, val=val, epochs=4, channels_last=True, ceiling_seconds=0.5)


def test_it_learns(learned: TrainReport) -> None:
    """Loss falls, and validation accuracy rises far above guessing."""
    losses = [epoch.loss for epoch in learned.epochs]

    assert losses[-1] < losses[0] / 2
    assert learned.epochs[-1].val_accuracy is not None
    assert learned.epochs[-1].val_accuracy > 0.8


def test_accuracies_are_those_of_whole_samples(learned: TrainReport) -> None:
    """Each accuracy is a whole number of right answers among all samples it is about."""
    for epoch in learned.epochs:
        assert epoch.val_accuracy is not None
        assert epoch.val_accuracy * 21 == pytest.approx(round(epoch.val_accuracy * 21))
        assert epoch.train_accuracy * 48 == pytest.approx(round(epoch.train_accuracy * 48))


def test_report_is_json(learned: TrainReport) -> None:
    """The whole report survives the way through JSON."""
    found = json.loads(json.dumps(dataclasses.asdict(learned)))

    assert (found["samples"], found["val_samples"]) == (48, 21)
    assert [epoch["epoch"] for epoch in found["epochs"]] == [0, 1, 2, 3]
    assert len(found["ceiling"]["rounds"]) == 5


def test_speed_is_the_median_after_the_first_epoch(learned: TrainReport) -> None:
    """The first epoch, which warms caches, is not in the figure."""
    later = sorted(epoch.images_per_second for epoch in learned.epochs[1:])

    assert learned.images_per_second == later[1]


def test_same_seed_same_result(colours: Path, make: Make) -> None:
    """One seed gives one result to the bit, whatever is measured beside it; another, another."""
    val = make(3, seed=1)

    def run(**options: Any) -> list[tuple[float, ...]]:
        epochs = train(colours, epochs=2, **options).epochs
        return [(e.loss, e.train_accuracy, e.lr) for e in epochs]

    first = run(seed=3)

    assert run(seed=3, val=val, ceiling_seconds=0.1, threads=2) == first
    assert run(seed=4) != first


def test_random_state_is_left_alone(colours: Path) -> None:
    """Training draws from its own seed, and leaves torch's random numbers as they were."""
    before = torch.get_rng_state()
    train(colours, batch_size=24)

    assert torch.equal(torch.get_rng_state(), before)


def test_without_validation(colours: Path) -> None:
    """Without validation data there is the running train accuracy, by that name."""
    report = train(colours, batch_size=24)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(report))
    text = console.export_text()

    assert report.epochs[0].val_accuracy is None
    assert report.ceiling is None
    assert "train accuracy" in text
    assert "val accuracy" not in text


def test_progress_tells_everything_in_order(colours: Path) -> None:
    """Warm-up, each step of each epoch, validation and the rounds of the ceiling are told."""
    told: list[Progress] = []
    train(colours, val=colours, epochs=2, ceiling_seconds=0.01, progress=told.append)

    phases = [(p.phase, p.epoch, p.done) for p in told]

    steps = [[("train", e, done) for done in range(1, 7)] + [("validate", e, 0)] for e in (0, 1)]
    rounds = [("ceiling", 0, done) for done in range(1, 6)]
    assert phases == [("warm-up", 0, 0), *steps[0], *steps[1], *rounds]
    assert told[6].loss is not None


@pytest.mark.parametrize("schedule", ["onecycle", "cosine"])
def test_last_rate_is_nearly_zero(colours: Path, schedule: str) -> None:
    """The schedule spans all epochs."""
    report = train(colours, epochs=3, batch_size=16, lr=0.02, schedule=schedule)

    assert report.epochs[0].lr > 0.01
    assert report.epochs[-1].lr < 0.002


def test_rate_grows_with_the_batch(colours: Path) -> None:
    """Without a rate of the user's, it is 0.1 for 256 images a step, in proportion."""
    assert train(colours, batch_size=16).lr == 0.1 * 16 / 256


def test_loss_that_is_not_finite(colours: Path) -> None:
    """A rate that is far too high is an error that says where and what to change."""
    with pytest.raises(DivergedError, match=r"loss became nan .* epoch 0 .*lower lr"):
        train(colours, lr=1e30)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"model": "resnet81"}, "unknown model 'resnet81'; near it: .*resnet18"),
        ({"model": "alexnet"}, "AlexNet cannot train on batches of 8 images of 32x32"),
        ({"batch_size": 49}, "48 samples make no batch of 49"),
        ({"batch_size": 0}, "batch_size"),
        ({"epochs": 0}, "epochs must be a whole number of 1 or more, not 0"),
        ({"lr": -1.0}, "lr must be a positive number, not -1.0"),
        ({"lr": float("nan")}, "lr must be a positive number, not nan"),
        ({"amp": "fp16"}, "fp16.* needs a CUDA device"),
        ({"device": "abacus"}, "device 'abacus' cannot be used"),
        ({"schedule": "step"}, "schedule must be one of onecycle, cosine"),
        ({"size": 0}, "size must be a whole number of 1 or more, not 0"),
        ({"ceiling_seconds": -1}, "ceiling_seconds must be 0 or more"),
    ],
)
def test_options_out_of_range(colours: Path, options: dict[str, Any], text: str) -> None:
    """Each option out of range is an error with the rule and what was found."""
    with pytest.raises(OptionError, match=text):
        train(colours, **options)


def test_data_without_labels(make: Make) -> None:
    """A flat folder cannot be trained on, and the error says what is missing."""
    with pytest.raises(OptionError, match=r"no labels to train on; .* one folder for each class"):
        train(make(8) / "red")


def test_validation_data_with_other_classes(colours: Path, make: Make) -> None:
    """Classes that differ are named."""
    val = make(2, classes=("blue", "green", "mauve"))

    with pytest.raises(OptionError, match="missing: 'red'; unknown: 'mauve'"):
        train(colours, val=val)


def test_validation_data_that_is_none(colours: Path, tmp_path: Path) -> None:
    """A validation path without data is refused before training."""
    with pytest.raises(NotADatasetError):
        train(colours, val=tmp_path)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (-1, "sample 'green/3' has no label; .*1 of"),
        (3, "sample 'green/3' has label 3, the data set has 3 classes; .*1 of"),
        (2**31 - 1, "sample 'green/3' has label 2147483647, the data set has 3 classes"),
    ],
)
@pytest.mark.parametrize("which", ["data", "val"])
def test_labels_of_no_class(
    colours: Path, make: Make, monkeypatch: pytest.MonkeyPatch, which: str, label: int, text: str
) -> None:
    """One sample of training or validation data whose label is no class's is named at once."""
    val = make(4)
    bad = str({"data": colours, "val": val}[which])
    labels = FolderSource.labels

    def some_wrong(source: FolderSource) -> npt.NDArray[np.int32]:
        found = labels(source).copy()
        if str(source.path) == bad:
            number = source.keys(np.arange(len(source))).index("green/3")
            found[number] = label
        return found

    monkeypatch.setattr(FolderSource, "labels", some_wrong)

    with pytest.raises(OptionError, match=f"{bad}: {text}"):
        train(colours, val=val)
