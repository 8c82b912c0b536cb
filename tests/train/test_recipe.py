"""The switches of a recipe, and what each of them does to a step."""

import copy
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim.swa_utils import AveragedModel
from torchvision.models import VisionTransformer
from torchvision.transforms import v2
from training import colours, plain_network, recipe, train, weights

from fastdata.errors import MissingExtraError, OptionError
from fastdata.train import Recipe
from fastdata.train.activation_checkpointing import checkpoint_blocks
from fastdata.train.data import Augmentation
from fastdata.train.device import kernels, pick_device
from fastdata.train.models import build, parameter_groups
from fastdata.train.optimizer import Average
from fastdata.train.step import TrainStep

CPU = torch.device("cpu")


def _batch(count: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 16, 16, generator=generator)
    return images, torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize(
    ("switches", "text"),
    [
        ({"epochs": 0}, "epochs must be a whole number of 1 or more, not 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number of 1 or more, not 2.5"),
        ({"accumulate": 0}, "accumulate must be"),
        ({"lr": 0.0}, "lr must be a positive number, not 0.0"),
        ({"lr": math.inf}, "lr must be a positive number, not inf"),
        ({"clip": -1.0}, "clip must be a positive number"),
        ({"optimizer": "lamb"}, "optimizer must be one of sgd, adamw, not 'lamb'"),
        ({"schedule": "step"}, "schedule must be one of onecycle, cosine, not 'step'"),
        ({"amp": "fp8"}, "amp must be one of off, bf16, fp16, not 'fp8'"),
        ({"momentum": 1.0}, "momentum must be from 0 to below 1, not 1.0"),
        ({"warmup": 1.0}, "warmup must be from 0 to below 1"),
        ({"ema": -0.1}, "ema must be from 0 to below 1"),
        ({"label_smoothing": math.nan}, "label_smoothing must be from 0 to below 1, not nan"),
        ({"erasing": 1.1}, "erasing must be from 0 to 1, not 1.1"),
        ({"mixup": -1.0}, "mixup must be 0 or more"),
        ({"weight_decay": math.inf}, "weight_decay must be 0 or more"),
    ],
)
def test_switches_out_of_range(switches: dict[str, Any], text: str) -> None:
    """A switch out of range is an error with its name, the rule and what was found."""
    with pytest.raises(OptionError, match=text):
        Recipe(**switches)


def test_rate_grows_with_the_images_of_a_step() -> None:
    """The rate is in proportion to the images of all ranks and accumulated batches."""
    assert Recipe(batch_size=64, accumulate=2).peak_lr(4) == pytest.approx(0.1 * 512 / 256)
    assert Recipe(optimizer="adamw", batch_size=1024).peak_lr() == pytest.approx(0.001)
    assert Recipe(lr=0.3, batch_size=999).peak_lr(8) == 0.3


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_step_is_torchs_optimizer(name: str, fused: bool) -> None:
    """Steps, clipping and smoothing included, are those of the loop that torch's users write."""
    network, expected = plain_network(), plain_network()
    chosen = recipe(
        optimizer=name, fused=fused, clip=0.05, label_smoothing=0.1, weight_decay=0.02, momentum=0.8
    )
    step = TrainStep(chosen, network, CPU)
    groups = parameter_groups(expected, 0.02)
    oracle: torch.optim.Optimizer = torch.optim.AdamW(groups)
    if name == "sgd":
        oracle = torch.optim.SGD(groups, momentum=0.8, nesterov=True)

    for number, lr in enumerate((0.1, 0.05, 0.02)):
        images, labels = _batch(seed=number)
        step(images, labels, lr)
        for group in oracle.param_groups:
            group["lr"] = lr
        oracle.zero_grad()
        cross_entropy(expected(images), labels, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(expected.parameters(), 0.05)
        oracle.step()

    torch.testing.assert_close(weights(network), weights(expected), rtol=1e-5, atol=1e-6)


def test_accumulated_batches_are_one_step() -> None:
    """Three parts of a batch change the weights as the whole of it does, and only at the end."""
    whole, parts = (TrainStep(recipe(), plain_network(), CPU) for _ in range(2))
    images, labels = _batch(12)
    before = weights(parts.module)
    whole(images, labels, 0.1)
    for number in range(3):
        assert torch.equal(weights(parts.module), before)
        part = slice(4 * number, 4 * number + 4)
        parts(images[part], labels[part], 0.1, share=1 / 3, update=number == 2)

    torch.testing.assert_close(weights(parts.module), weights(whole.module), rtol=1e-5, atol=1e-7)


def test_average_is_torchs() -> None:
    """The average is AveragedModel's with the same decays, statistics included."""
    network = plain_network(norm=True)
    step = TrainStep(recipe(ema=0.4), network, CPU)
    start = copy.deepcopy(network)

    def average(old: torch.Tensor, new: torch.Tensor, number: int | torch.Tensor) -> torch.Tensor:
        decay = min(0.4, float(number) / (9 + float(number)))
        return old * decay + new * (1 - decay)

    oracle = AveragedModel(start, avg_fn=average, use_buffers=True)
    oracle.update_parameters(start)  # the first update is a copy

    for number in range(6):
        step(*_batch(seed=number), 0.1)
        oracle.update_parameters(network)

    assert step.average is not None
    found = {n: t for n, t in step.average.module.state_dict().items() if t.is_floating_point()}
    expected = oracle.module.state_dict()
    torch.testing.assert_close(found, {n: expected[n] for n in found})
    counted = [t for n, t in step.average.module.state_dict().items() if "num_batches" in n]
    assert counted == [6]


def test_average_is_what_is_tested() -> None:
    """Evaluation uses the averaged weights, training the others."""
    step = TrainStep(recipe(ema=0.9), plain_network(), CPU)
    images, labels = _batch()
    for _ in range(3):
        step(images, labels, 0.5)
    step.module.eval()

    assert step.average is not None
    torch.testing.assert_close(step.predict(images), step.average.module(images))
    assert not torch.allclose(step.predict(images), step.scores(images))


def test_average_survives_its_state() -> None:
    """An average goes on from its state as it would have without."""
    network = plain_network()
    first, second = Average(network, 0.9), Average(network, 0.9)
    with torch.no_grad():
        for number in range(4):
            network.get_parameter("0.weight").add_(number)
            first.update()
            if number == 1:
                second.load_state_dict(copy.deepcopy(first.state_dict()))
            elif number > 1:
                second.update()

    assert torch.equal(weights(first.module), weights(second.module))


def _transformer() -> nn.Module:
    network: nn.Module = VisionTransformer(
        32, 8, 2, 2, 16, 32, dropout=0.3, attention_dropout=0.3, num_classes=3
    )
    return network


@pytest.mark.parametrize("make", [partial(build, "resnet18", classes=3, size=32), _transformer])
def test_checkpointing_changes_nothing(make: Callable[[], nn.Module]) -> None:
    """With activations computed twice, steps are the same to the bit: dropout, statistics too."""
    states = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        network = make()
        step = TrainStep(recipe(checkpointing=checkpointing, ema=0.5), network, CPU)
        images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        for _ in range(2):
            step(images, torch.tensor([0, 2]), 0.1)
        states.append((list(network.state_dict()), weights(network)))

    assert states[0][0] == states[1][0]
    assert torch.equal(states[0][1], states[1][1])


def test_checkpointing_keeps_less() -> None:
    """What a block would keep for the backward pass is not kept."""
    kept = []
    for checkpointing in (False, True):
        network = build("resnet18", classes=3, size=32)
        if checkpointing:
            checkpoint_blocks(network)
        sizes: list[int] = []

        def note(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel() * (not isinstance(tensor, nn.Parameter)))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            network(torch.zeros(4, 3, 64, 64))
        kept.append(sum(sizes))

    assert kept[1] < kept[0] / 2


def test_model_without_blocks() -> None:
    """A model with nothing to checkpoint is an error."""
    with pytest.raises(OptionError, match="Sequential has no blocks to checkpoint"):
        TrainStep(recipe(checkpointing=True), plain_network(), CPU)


@pytest.mark.parametrize(
    ("switches", "text"),
    [
        ({"sync_bn": True}, "sync_bn needs a CUDA device, not cpu"),
        ({"checkpointing": True, "compile": True}, "exclude each other"),
        ({"amp": "fp16"}, "needs a CUDA device"),
    ],
)
def test_switches_that_cannot_be_here(switches: dict[str, Any], text: str) -> None:
    """What the device cannot do, or what excludes each other, is an error."""
    with pytest.raises(OptionError, match=text):
        TrainStep(recipe(**switches), plain_network(), CPU)


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_mixing_is_torchvisions(name: str) -> None:
    """MixUp and CutMix are torchvision's, random numbers included; labels become shares."""
    images, labels = _batch()
    augment = Augmentation(recipe(**{name: 0.7}))
    augment.prepare(3)
    oracle = {"mixup": v2.MixUp, "cutmix": v2.CutMix}[name](num_classes=3, alpha=0.7)
    torch.manual_seed(5)
    expected = oracle(images, labels)
    torch.manual_seed(5)
    found = augment(images, labels)

    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert found[1].shape == (6, 3)


def test_each_batch_gets_one_of_two_mixes() -> None:
    """With MixUp and CutMix on, each batch gets one of the two."""
    augment = Augmentation(recipe(mixup=1.0, cutmix=1.0))
    augment.prepare(2)
    pixels = torch.stack([torch.zeros(3, 16, 16), torch.ones(3, 16, 16)])
    torch.manual_seed(0)
    whole = [bool(((m := augment(pixels, torch.tensor([0, 1]))[0]) % 1 == 0).all()) for _ in
             range(40)]  # fmt: skip

    assert m.shape == pixels.shape
    assert 5 < sum(whole) < 35  # CutMix leaves pixels as they are


def test_shares_count_as_their_larger_part() -> None:
    """A step takes (N, classes) shares; an image is right where its larger part is."""
    step = TrainStep(recipe(), plain_network(), CPU)
    images, labels = _batch()
    shares = 0.7 * one_hot(labels, 3) + 0.3 * one_hot((labels + 1) % 3, 3)
    with torch.no_grad():
        right = (step.module(images).argmax(1) == labels).sum()
        loss = cross_entropy(step.module(images), shares)
    result = step(images, shares, 0.1)

    assert result.correct == right
    assert float(result.loss) == pytest.approx(float(loss))


def test_mixing_without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchvision, mixing is an error with the line that installs it."""
    monkeypatch.setitem(sys.modules, "torchvision.transforms", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'fastdata\[train\]'"):
        Augmentation(recipe(mixup=0.2))


def test_settings_of_torch_are_put_back() -> None:
    """Deterministic kernels, cuDNN and TF32 are as before once a run is over."""

    def settings() -> tuple[object, ...]:
        cudnn = torch.backends.cudnn
        return (
            torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, cudnn.deterministic,
            torch.get_float32_matmul_precision(),
        )  # fmt: skip

    before = settings()
    with kernels(recipe(deterministic=True, tf32=True), CPU):
        assert settings() == (True, False, True, "high")
    with kernels(recipe(), CPU):
        assert settings() == (False, True, False, before[3])

    assert settings() == before


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch 2.9 has them first")
@pytest.mark.parametrize("theirs", ["tf32", "ieee", "none"])
@pytest.mark.parametrize("tf32", [False, True])
def test_float32_is_what_the_recipe_says(theirs: str, tf32: bool) -> None:
    """Matrices and convolutions agree, also where the user chose by torch's newer switches."""
    backends: Any = torch.backends
    kinds = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = theirs

        with kernels(recipe(tf32=tf32), CPU):
            assert {kind.fp32_precision for kind in kinds} == {"tf32" if tf32 else "ieee"}
            assert backends.cudnn.allow_tf32 is tf32  # readable: the two sets of switches agree
            assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")

        assert {kind.fp32_precision for kind in kinds} == {theirs}
    finally:
        for kind, value in zip(kinds, before, strict=True):
            kind.fp32_precision = value


@pytest.mark.parametrize(("gpus", "expected"), [(1, "cuda:0"), (4, "cuda:2")])
def test_the_gpu_of_a_rank(monkeypatch: pytest.MonkeyPatch, gpus: int, expected: str) -> None:
    """It has the rank's number, but where a process sees a single GPU it is that one."""
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    with pytest.raises(OptionError, match=f"{expected}' cannot be used" if gpus > 1 else "'cuda' "):
        pick_device("cuda")


def test_every_switch_at_once(tmp_path: Path) -> None:
    """A run with everything that the CPU can do ends, with finite figures."""
    chosen = recipe(
        optimizer="adamw", schedule="cosine", accumulate=2, clip=1.0, label_smoothing=0.1,
        mixup=0.2, cutmix=1.0, erasing=0.5, ema=0.9, amp="bf16", channels_last=True,
        checkpointing=True, deterministic=True, tf32=True, size=32,
    )  # fmt: skip
    data, val = colours(tmp_path / "t", 6), colours(tmp_path / "v", 2, seed=1)
    report = train(data, chosen, val=val, network=_transformer())

    assert np.isfinite([e.loss for e in report.epochs]).all()
    assert report.recipe == chosen


def test_network_of_the_caller(tmp_path: Path) -> None:
    """A module of the caller's is trained in place, and named by its class."""
    network = plain_network()
    before = weights(network)
    report = train(colours(tmp_path / "t", 6), recipe(), network=network)

    assert report.model == "Sequential"
    assert not torch.equal(weights(network), before)


def test_network_with_other_classes(tmp_path: Path) -> None:
    """A model whose last layer does not fit the classes is an error with both numbers."""
    data = colours(tmp_path / "t", 6, classes=("blue", "red"))

    with pytest.raises(OptionError, match=r"Sequential gives 3 scores an image, .* 2 classes"):
        train(data, recipe(), network=plain_network())


def test_device_out_of_memory(tmp_path: Path) -> None:
    """Too little memory in a step is an error with the batch, and what to change."""

    class Hungry(nn.Module):
        """Runs out of memory in training, behind the warm-up or in it."""

        def __init__(self, steps: int) -> None:
            super().__init__()
            self.inner = plain_network()
            self.left = steps

        def forward(self, images: torch.Tensor) -> Any:
            self.left -= 1
            if self.left < 0:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return self.inner(images)

    data = colours(tmp_path / "t", 6)
    for steps in (0, 6):
        with pytest.raises(OptionError, match=r"too little memory for steps on 4 .* 2\.00 GiB"):
            train(data, recipe(), network=Hungry(steps))
