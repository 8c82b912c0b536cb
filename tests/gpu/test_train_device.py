"""Training on a CUDA device, in every precision, and stopped and resumed there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import resnet18
from training import Killed, colours, recipe, train, weights

from fastdata.train import Progress, Recipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

_AMP = pytest.mark.parametrize("amp", ["off", "bf16", "fp16"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 pictures in 3 classes."""
    return colours(tmp_path_factory.mktemp("data") / "train", 16)


def _recipe(amp: Any, **switches: Any) -> Recipe:
    return recipe(size=32, batch_size=8, amp=amp, channels_last=True, **switches)


def _network() -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = resnet18(num_classes=3)
    return network


@_AMP
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_it_learns(data: Path, amp: str, optimizer: str) -> None:
    """Loss falls; in fp16 also where the first gradients overflow."""
    report = train(data, _recipe(amp, epochs=4, optimizer=optimizer), device="cuda")
    losses = [epoch.loss for epoch in report.epochs]

    assert losses[-1] < losses[0]


@_AMP
def test_resumed_equals_uninterrupted(data: Path, tmp_path: Path, amp: str) -> None:
    """Stopped in mid-epoch and resumed, a deterministic run has the same weights to the bit."""
    chosen = _recipe(amp, deterministic=True, ema=0.9)
    expected, found = _network(), _network()
    train(data, chosen, network=expected, device="cuda")

    def progress(at: Progress) -> None:
        if (at.phase, at.epoch, at.done) == ("train", 1, 2):
            raise Killed

    checkpoint = tmp_path / "run.pt"
    with pytest.raises(Killed):
        train(
            data, chosen, network=_network(), device="cuda", checkpoint=checkpoint,
            checkpoint_every=1, progress=progress,
        )  # fmt: skip
    train(data, chosen, network=found, device="cuda", checkpoint=checkpoint, resume=True)

    assert torch.equal(weights(found), weights(expected))
