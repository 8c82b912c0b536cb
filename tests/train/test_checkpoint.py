"""Training that was stopped goes on as if it had not been."""

import dataclasses
import os
import shutil
import signal
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training import Killed, colours, plain_network, recipe, train, weights

from fastdata.errors import DestinationError, OptionError, StateError
from fastdata.train import EpochResult, Progress, Recipe
from fastdata.train.checkpoint import save

# 15 pictures make 3 whole batches of 4 an epoch, and with accumulation steps of 2 and of 1.
_MIXED = {"mixup": 0.2, "cutmix": 1.0, "erasing": 0.5, "label_smoothing": 0.1, "clip": 1.0}
_RECIPES = {
    "plain": recipe(),
    "everything": recipe(optimizer="adamw", schedule="cosine", ema=0.9, **_MIXED),
    "accumulated": recipe(accumulate=2, channels_last=True, ema=0.5),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 pictures in 3 classes."""
    return colours(tmp_path_factory.mktemp("data") / "train", 5)


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9 others."""
    return colours(tmp_path_factory.mktemp("data") / "val", 3, seed=1)


def _figures(epochs: tuple[EpochResult, ...]) -> list[dict[str, Any]]:
    """All that does not depend on the clock."""
    return [dataclasses.asdict(e) | {"images_per_second": None} for e in epochs]


def _network() -> nn.Sequential:
    """One with batch statistics and random numbers."""
    return plain_network(drop=0.5, norm=True)


def _killed_after(path: Path, chosen: Recipe, steps: int, checkpoint: Path, **options: Any) -> None:
    """A run that ends without warning once so many steps are done and saved."""
    told = 0

    def progress(at: Progress) -> None:
        nonlocal told
        told += at.phase == "train"
        if told == steps:
            raise Killed

    with pytest.raises(Killed):
        train(
            path, chosen, network=_network(), checkpoint=checkpoint, checkpoint_every=1,
            progress=progress, **options,
        )  # fmt: skip


@pytest.mark.parametrize("name", _RECIPES)
def test_resumed_equals_uninterrupted(name: str, data: Path, val: Path, tmp_path: Path) -> None:
    """Killed after any step and resumed, a run has the same weights and figures to the bit."""
    chosen = _RECIPES[name]
    expected = _network()
    report = train(data, chosen, val=val, network=expected)
    steps = 2 * (2 if chosen.accumulate == 2 else 3)

    for step in range(1, steps + 1):
        checkpoint = tmp_path / f"{step}.pt"
        _killed_after(data, chosen, step, checkpoint, val=val)
        torch.manual_seed(step)  # another process has other random numbers
        found = _network()
        again = train(data, chosen, val=val, network=found, checkpoint=checkpoint, resume=True)

        assert _figures(again.epochs) == _figures(report.epochs)
        assert torch.equal(weights(found), weights(expected))


def test_resumed_twice(data: Path, tmp_path: Path) -> None:
    """What was resumed can be killed and resumed again."""
    expected, found = _network(), _network()
    report = train(data, recipe(), network=expected)
    for steps in (2, 1):
        _killed_after(data, recipe(), steps, tmp_path / "run.pt", resume=True)
    again = train(data, recipe(), network=found, checkpoint=tmp_path / "run.pt", resume=True)

    assert _figures(again.epochs) == _figures(report.epochs)
    assert torch.equal(weights(found), weights(expected))


def test_finished_run_is_not_trained_again(data: Path, tmp_path: Path) -> None:
    """Resuming what is finished gives its report and its weights, without a step."""
    trained, found = _network(), _network()
    told: list[Progress] = []
    first = train(data, recipe(), network=trained, checkpoint=tmp_path / "run.pt")
    again = train(
        data, recipe(), network=found, checkpoint=tmp_path / "run.pt", resume=True,
        progress=told.append,
    )  # fmt: skip

    assert again.epochs == first.epochs
    assert torch.equal(weights(found), weights(trained))
    assert {at.phase for at in told} == {"warm-up"}


def test_resume_without_a_checkpoint_begins(data: Path, tmp_path: Path) -> None:
    """The same command line begins a run and goes on with it."""
    report = train(data, recipe(), network=_network(), checkpoint=tmp_path / "a.pt", resume=True)

    assert len(report.epochs) == 2
    assert (tmp_path / "a.pt").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_behind_its_checkpoint(
    number: signal.Signals, data: Path, tmp_path: Path
) -> None:
    """A signal acts once the step is done and saved, as it would have acted when it came."""
    expected, found = _network(), _network()
    train(data, recipe(), network=expected)
    seen: list[int] = []

    def handler(number: int, _: object) -> None:
        seen.append(number)
        raise Killed

    def progress(at: Progress) -> None:
        if (at.phase, at.epoch, at.done) == ("train", 0, 2):
            os.kill(os.getpid(), number)
            assert not seen

    before = signal.signal(number, handler)
    try:
        with pytest.raises(Killed):
            train(
                data, recipe(), network=_network(), checkpoint=tmp_path / "run.pt",
                progress=progress,
            )  # fmt: skip
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    told: list[Progress] = []
    train(
        data, recipe(), network=found, checkpoint=tmp_path / "run.pt", resume=True,
        progress=told.append,
    )  # fmt: skip

    assert seen == [number]
    assert [at.done for at in told if at.phase == "train"] == [1, 2, 3]  # of the second epoch
    assert torch.equal(weights(found), weights(expected))


def test_second_interrupt_acts_at_once(data: Path, tmp_path: Path) -> None:
    """Ctrl-C twice does not wait for the step."""

    def progress(at: Progress) -> None:
        if at.phase == "train":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(data, recipe(), network=_network(), checkpoint=tmp_path / "a.pt", progress=progress)

    assert not (tmp_path / "a.pt").exists()


def test_in_a_thread(data: Path, tmp_path: Path) -> None:
    """Outside the main thread, where no signal handler can be set, a run is saved all the same."""
    options: dict[str, Any] = {"network": _network(), "checkpoint": tmp_path / "run.pt"}
    thread = threading.Thread(target=train, args=(data, recipe(epochs=1)), kwargs=options)
    thread.start()
    thread.join(240)

    assert (tmp_path / "run.pt").exists()


@pytest.fixture(scope="module")
def written(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint behind the first step."""
    path = tmp_path_factory.mktemp("written") / "run.pt"
    _killed_after(data, recipe(), 1, path)
    return path


@pytest.fixture
def checkpoint(written: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(written, tmp_path / "run.pt"))


@pytest.mark.parametrize(
    ("switches", "text"),
    [
        ({"size": 24}, "its size is 16, here it is 24"),
        ({"batch_size": 5}, "its batch_size is 4, here it is 5"),
        ({"optimizer": "adamw"}, "its optimizer is 'sgd', here it is 'adamw'"),
        ({"ema": 0.9}, "its ema is None, here it is 0.9"),
    ],
)
def test_checkpoint_of_another_recipe(
    switches: dict[str, Any], text: str, data: Path, checkpoint: Path
) -> None:
    """Another recipe than the checkpoint's is an error that names the switch and both values."""
    with pytest.raises(StateError, match=text):
        train(data, recipe(**switches), network=_network(), checkpoint=checkpoint, resume=True)


def test_checkpoint_of_another_model(data: Path, checkpoint: Path) -> None:
    """Another model, by its name or by its weights, is an error."""
    with pytest.raises(StateError, match="its model is 'Sequential', here it is 'resnet18'"):
        train(data, recipe(size=16), checkpoint=checkpoint, resume=True)
    with pytest.raises(StateError, match="does not fit the model"):
        train(
            data, recipe(), network=plain_network()[:2].append(nn.Flatten()).append(
                nn.Linear(512, 3)), checkpoint=checkpoint, resume=True,
        )  # fmt: skip


def test_checkpoint_of_other_data(val: Path, checkpoint: Path) -> None:
    """Another data set is an error that says so."""
    with pytest.raises(StateError, match="its data set is"):
        train(val, recipe(), network=_network(), checkpoint=checkpoint, resume=True)


def test_damaged_checkpoints(data: Path, checkpoint: Path) -> None:
    """A file that is cut, changed in a bit, or something else is an error that names it."""
    whole = checkpoint.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"/data/0") + 200] ^= 4
    other = checkpoint.with_name("other.pt")
    torch.save({"model": torch.zeros(3)}, other)
    hostile = checkpoint.with_name("hostile.pt")
    torch.save({"version": print}, hostile)
    edited = []
    good = torch.load(checkpoint, weights_only=True)
    crafted = {"epochs": [None], "sums": torch.zeros(0), "random": torch.zeros(0), "parts": {}}
    for name, value in [*dict.fromkeys(good).items(), *crafted.items()]:
        torch.save({**good, name: value}, other)
        edited.append(other.read_bytes())
    torch.save({"model": torch.zeros(3)}, other)
    for content in (whole[:-10], bytes(flipped), b"", b"text", other.read_bytes(),
                    hostile.read_bytes(), *edited):  # fmt: skip
        checkpoint.write_bytes(content)
        with pytest.raises(StateError, match=r"run\.pt"):
            train(data, recipe(), network=_network(), checkpoint=checkpoint, resume=True)


def test_checkpoint_that_would_be_inflated(data: Path, checkpoint: Path) -> None:
    """A checkpoint is stored as it is: one that is compressed could be of any size."""
    with zipfile.ZipFile(checkpoint) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(checkpoint, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in content.items():
            archive.writestr(name, member)
    with pytest.raises(StateError, match=r"run\.pt"):
        train(data, recipe(), network=_network(), checkpoint=checkpoint, resume=True)


def test_checkpoint_on_a_full_disk() -> None:
    """The error says what is wrong and with which file, not what torch makes of it."""
    with (
        open("/dev/full", "wb", buffering=0) as full,
        pytest.raises(OSError, match="No space") as e,
    ):
        save({"weights": torch.zeros(1 << 20)}, full, Path("run.pt"))
    assert e.value.filename == "run.pt"


def test_checkpoint_that_is_no_file(data: Path, tmp_path: Path) -> None:
    """A FIFO is an error, not a wait."""
    os.mkfifo(tmp_path / "run.pt")
    with pytest.raises(OSError, match="not a regular file"):
        train(data, recipe(), network=_network(), checkpoint=tmp_path / "run.pt", resume=True)


def test_checkpoints_that_contradict_themselves(data: Path, checkpoint: Path) -> None:
    """Numbers of a checkpoint that are not of one moment of a run are an error that names it."""
    good = torch.load(checkpoint, weights_only=True)
    loader, sums, results = good["loader"], good["sums"], good["epochs"]
    edits: list[dict[str, Any]] = [
        *({"step": good["step"] + more} for more in (-10_000, -1, 1, 10**30)),
        *({"seconds": seconds} for seconds in (-1.0, float("nan"), float("inf"))),
        {"epochs": [*results, *[{"epoch": number} for number in range(9)]]},
        {"epochs": [{"epoch": 0, "loss": "low"}]},
        {"loader": {**loader, "epoch": loader["epoch"] + 1}},
        {"loader": {**loader, "samples": loader["samples"] + 1}},
        {"sums": sums + 1},
        {"sums": sums * float("nan")},
        {"sums": sums[0]},
    ]
    for edit in edits:
        torch.save({**good, **edit}, checkpoint)
        with pytest.raises(StateError, match=r"run\.pt"):
            train(data, recipe(), network=_network(), checkpoint=checkpoint, resume=True)


def test_checkpoint_that_is_there(data: Path, checkpoint: Path) -> None:
    """A checkpoint is not overwritten by a run that does not resume from it."""
    before = checkpoint.read_bytes()
    with pytest.raises(DestinationError, match=r"run\.pt exists; set resume to continue from it"):
        train(data, recipe(), network=_network(), checkpoint=checkpoint)

    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"checkpoint": "none/run.pt"}, "the folder none does not exist"),
        ({"checkpoint": "run.pt", "checkpoint_every": 0}, "checkpoint_every must be 1 or more"),
    ],
)
def test_options_out_of_range(data: Path, options: dict[str, Any], text: str) -> None:
    """What cannot be is refused before any work is done."""
    with pytest.raises(OptionError, match=text):
        train(data, recipe(), network=_network(), **options)


@pytest.mark.parametrize("resume", [False, True])
def test_a_checkpoint_that_cannot_be_written(data: Path, tmp_path: Path, resume: bool) -> None:
    """It is refused before any work is done, by name and with the reason."""
    told: list[Progress] = []
    blocked = tmp_path / "run.pt"
    (tmp_path / "run.pt.tmp").mkdir()
    (tmp_path / "run.pt.tmp" / "file").touch()
    for path in (blocked, Path("/proc/run.pt")):
        with pytest.raises(DestinationError, match=f"checkpoint: {path} cannot be written: [A-Z]"):
            train(
                data, recipe(), network=_network(), checkpoint=path, resume=resume,
                progress=told.append,
            )  # fmt: skip

    assert not told
    assert not blocked.exists()


def test_trying_to_write_leaves_the_checkpoint(data: Path, checkpoint: Path) -> None:
    """A run that resumes, or fails before its first step, leaves nothing but the checkpoint."""
    before = checkpoint.read_bytes()
    with pytest.raises(StateError):
        train(data, recipe(epochs=9), network=_network(), checkpoint=checkpoint, resume=True)

    assert checkpoint.read_bytes() == before
    assert [path.name for path in checkpoint.parent.iterdir()] == [checkpoint.name]
