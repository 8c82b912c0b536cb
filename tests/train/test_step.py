"""The parts of the reference step: one step, exact accuracy, the ceiling."""

import copy
import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from fastdata.batch.batch import Batch
from fastdata.errors import OptionError
from fastdata.train.ceiling import measure_ceiling
from fastdata.train.device import amp_dtype
from fastdata.train.loop import evaluate
from fastdata.train.recipe import Recipe
from fastdata.train.step import StepResult, TrainStep

CPU = torch.device("cpu")


def _network() -> nn.Module:
    """A network with everything that has state: weights, batch statistics, random numbers."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3),
    )  # fmt: skip


def _batch(count: int = 4, *, seed: int = 0, valid: list[bool] | None = None) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 8, 8, generator=generator)
    return Batch(
        images.contiguous(memory_format=torch.channels_last),
        torch.randint(0, 3, (count,), generator=generator),
        np.arange(count),
        torch.tensor(valid if valid is not None else [True] * count),
        lambda ids: [str(i) for i in ids],
    )


def _make_step(step: TrainStep, *, seed: int = 0) -> StepResult:
    batch = _batch(seed=seed)
    return step(batch.images, batch.labels, lr=0.1)


def _state(step: TrainStep) -> dict[str, torch.Tensor]:
    """Everything that a step changes."""
    state = {name: tensor.clone() for name, tensor in step.module.state_dict().items()}
    for number, slots in step.optimizer.state_dict()["state"].items():
        state[f"momentum {number}"] = slots["momentum_buffer"].clone()
    return state | {"random": torch.get_rng_state()}


def _same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_step_is_sgd_by_the_book() -> None:
    """Two steps change a linear model as the formula of SGD with Nesterov momentum has it."""
    torch.manual_seed(0)
    linear = nn.Linear(12, 3)
    step = TrainStep(Recipe(), nn.Sequential(nn.Flatten(), linear), CPU)
    images, labels = torch.randn(5, 3, 2, 2), torch.tensor([0, 1, 2, 0, 1])
    inputs = images.flatten(1).numpy().astype(np.float64)  # (5, 12)
    weight = linear.weight.detach().numpy().astype(np.float64)  # (3, 12)
    bias = linear.bias.detach().numpy().astype(np.float64)  # (3,)
    moving = [np.zeros_like(weight), np.zeros_like(bias)]

    for lr in (0.5, 0.25):
        scores = np.exp(inputs @ weight.T + bias)
        shares = scores / scores.sum(1, keepdims=True)
        loss = -np.log(shares[range(5), labels]).mean()
        error = (shares - np.eye(3)[labels]) / 5  # (5, 3)
        slopes = [error.T @ inputs + 1e-4 * weight, error.sum(0)]  # only the matrix decays
        moving = [0.9 * old + slope for old, slope in zip(moving, slopes, strict=True)]
        weight -= lr * (slopes[0] + 0.9 * moving[0])
        bias -= lr * (slopes[1] + 0.9 * moving[1])
        result = step(images, labels, lr)

        assert float(result.loss) == pytest.approx(loss, rel=1e-5)
        assert int(result.correct) == (shares.argmax(1) == labels.numpy()).sum()

    assert linear.weight.detach().numpy() == pytest.approx(weight, rel=1e-4, abs=1e-6)
    assert linear.bias.detach().numpy() == pytest.approx(bias, rel=1e-4, abs=1e-6)


def test_gradients_are_gone_after_a_step() -> None:
    """No gradient memory is held between steps."""
    step = TrainStep(Recipe(), _network(), CPU)
    _make_step(step)

    assert all(p.grad is None for p in step.module.parameters())


@pytest.mark.parametrize("channels_last", [False, True])
def test_layout_follows_the_switch(channels_last: bool) -> None:
    """Weights and what the network is called with are laid out as the switch says."""
    step = TrainStep(Recipe(channels_last=channels_last), _network(), CPU)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    seen = []
    step.module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    _make_step(step)

    assert step.module.get_parameter("0.weight").is_contiguous(memory_format=layout)
    assert seen[0].is_contiguous(memory_format=layout)


def test_compiled_step_equals_plain_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called through the compiler, a step has the same result and trains the same weights."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    plain, compiled = (
        TrainStep(Recipe(compile=switch), _network(), CPU) for switch in (False, True)
    )
    results = []
    for step in (plain, compiled):
        torch.manual_seed(1)  # of dropout
        results.append([float(_make_step(step, seed=seed).loss) for seed in range(3)])

    assert compiled.model is not compiled.module
    assert results[0] == pytest.approx(results[1], rel=1e-6)
    torch.testing.assert_close(plain.module.state_dict(), compiled.module.state_dict())


def test_bf16_step_is_near_float32() -> None:
    """Under bf16 autocast the loss is float32's within bf16's 8 bits; weights stay float32."""
    batch = _batch(64)
    losses = []
    for amp, dtype in (("off", torch.float32), ("bf16", torch.bfloat16)):
        step = TrainStep(Recipe(amp=amp), _network().eval(), CPU)
        images = batch.images.to(dtype)
        losses.append(float(step(images, batch.labels, lr=0.1).loss))

        assert all(p.dtype == torch.float32 for p in step.module.parameters())

    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=2**-6)


@pytest.fixture
def _uninitialised_is_nan() -> Iterator[None]:
    """Let memory that nobody has written to hold NaN."""
    torch.use_deterministic_algorithms(True)  # which does that too
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_uninitialised_is_nan")
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_fp16_step_that_overflows_is_skipped(
    optimizer: str, fused: bool, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the very first one leaves weights, momentum and later steps as if it had not been."""
    monkeypatch.setattr("fastdata.train.step.amp_dtype", lambda *_: torch.float16)  # on the CPU
    recipe = Recipe(optimizer=optimizer, fused=fused, clip=clip)
    skipping, plain = (TrainStep(recipe, _network().eval(), CPU) for _ in range(2))
    before = copy.deepcopy(skipping.module.state_dict())
    batch = _batch(8)
    images = batch.images.half()

    skipping(images, batch.labels, lr=0.1, share=math.inf)

    torch.testing.assert_close(skipping.module.state_dict(), before, rtol=0, atol=0)
    assert skipping.scaler.get_scale() == plain.scaler.get_scale() / 2
    plain.scaler.load_state_dict(skipping.scaler.state_dict())
    for _ in range(3):
        results = [step(images, batch.labels, lr=0.1) for step in (skipping, plain)]
        assert results[0].loss == results[1].loss
    found, expected = skipping.module.state_dict(), plain.module.state_dict()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert all(p.dtype == torch.float32 for p in skipping.module.parameters())


@pytest.mark.parametrize(
    ("amp", "text"),
    [("fp8", "amp must be one of off, bf16, fp16, not 'fp8'"), ("fp16", "needs a CUDA device")],
)
def test_amp_that_cannot_be(amp: str, text: str) -> None:
    """An unknown precision, and fp16 on the CPU, are errors that say what to use."""
    with pytest.raises(OptionError, match=text):
        amp_dtype(amp, CPU)


def test_warm_up_leaves_no_trace() -> None:
    """After the warm-up weights, batch statistics, momentum and random state are as before."""
    step = TrainStep(Recipe(), _network(), CPU)
    before = _state(step)
    step.warm_up(batch_size=4, size=8)

    assert _same(before, _state(step))


def test_model_that_cannot_take_the_batch() -> None:
    """A shape that a model refuses is found in the warm-up, as an error with the shape."""
    step = TrainStep(Recipe(), _network(), CPU)
    assert isinstance(step.module, nn.Sequential)
    step.module.append(nn.Linear(99, 3))

    with pytest.raises(OptionError, match="cannot train on batches of 4 images of 8x8 pixels"):
        step.warm_up(batch_size=4, size=8)


def test_ceiling_leaves_no_trace() -> None:
    """Measuring the ceiling changes neither weights, statistics, momentum nor random state."""
    step = TrainStep(Recipe(), _network(), CPU)
    _make_step(step)
    before = _state(step)
    found = measure_ceiling(step, [_batch(seed=seed) for seed in range(3)], seconds=0.2)

    assert len(found.rounds) == 5
    assert _same(before, _state(step))


def test_accuracy_counts_each_valid_sample_once() -> None:
    """Samples that only fill up a batch do not count, whatever the sizes of the batches."""
    step = TrainStep(Recipe(), _network(), CPU)
    batches = [_batch(5), _batch(7, seed=1, valid=[True] * 3 + [False] * 4), _batch(1, seed=2)]
    step.module.eval()
    right = [step.scores(batch.images).argmax(1) == batch.labels for batch in batches]
    step.module.train()
    expected = sum(int(r[batch.valid].sum()) for r, batch in zip(right, batches, strict=True)) / 9

    assert evaluate(step, batches) == pytest.approx(expected)
    assert step.module.training


def test_accuracy_without_valid_samples() -> None:
    """Nothing to count gives zero, not a division by zero."""
    assert evaluate(TrainStep(Recipe(), _network(), CPU), [_batch(2, valid=[False, False])]) == 0
