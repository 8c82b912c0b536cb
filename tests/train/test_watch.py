"""The profiler's trace, and scalars."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from training import colours, plain_network, recipe, train

from fastdata.errors import MissingExtraError, OptionError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 pictures."""
    return colours(tmp_path_factory.mktemp("data") / "train", 5)


@pytest.mark.parametrize(("epochs", "recorded"), [(4, 5), (1, 2)])
def test_trace_is_chromes(epochs: int, recorded: int, data: Path, tmp_path: Path) -> None:
    """The trace is JSON with some steps and the operations in them, however short the run."""
    path = tmp_path / "trace.json"
    train(data, recipe(epochs=epochs), network=plain_network(), profile=path)
    names = [event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]]

    assert len({name for name in names if name.startswith("ProfilerStep#")}) == recorded
    assert any("conv2d" in name for name in names)


def test_trace_of_too_short_a_run(data: Path, tmp_path: Path) -> None:
    """One step cannot be profiled, since the profiler needs one to warm up."""
    with pytest.raises(OptionError, match="profile needs 2 steps or more, this run has 1"):
        train(data, recipe(epochs=1, batch_size=15), network=plain_network(), profile=tmp_path)


def test_trace_without_a_folder(data: Path) -> None:
    """The trace's folder has to exist."""
    with pytest.raises(OptionError, match="profile: the folder none does not exist"):
        train(data, recipe(), network=plain_network(), profile="none/trace.json")


def test_trace_into_a_folder(data: Path, tmp_path: Path) -> None:
    """A folder in the place of the trace is refused at the start, not passed over at the end."""
    with pytest.raises(OptionError, match="is a folder; choose a file"):
        train(data, recipe(), network=plain_network(), profile=tmp_path)


def test_scalars(data: Path, tmp_path: Path) -> None:
    """TensorBoard's own reader finds each epoch's figures at its last step."""
    events: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError
    )
    report = train(data, recipe(), val=data, network=plain_network(), tensorboard=tmp_path / "tb")
    found = events.EventAccumulator(str(tmp_path / "tb")).Reload()

    def values(name: str) -> list[tuple[int, Any]]:
        return [(e.step, pytest.approx(e.value)) for e in found.Scalars(name)]

    assert values("train/loss") == [(3, report.epochs[0].loss), (6, report.epochs[1].loss)]
    assert values("val/accuracy") == [(3 * n + 3, e.val_accuracy) for n, e in
                                      enumerate(report.epochs)]  # fmt: skip
    assert len(values("train/images_per_second")) == 2


def test_scalars_without_tensorboard(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TensorBoard, asking for its scalars is an error with the line that installs it."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)

    with pytest.raises(MissingExtraError, match="pip install tensorboard"):
        train(data, recipe(), network=plain_network(), tensorboard=tmp_path)
