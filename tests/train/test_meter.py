"""Sums of a pass, NVML's samples and the description of the machine."""

import math
import platform
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch

from fastdata.train.meter import PassMeter, UtilizationSampler, machine
from fastdata.train.step import StepResult

CPU = torch.device("cpu")


def test_pass_meter_weighs_by_images() -> None:
    """Loss and accuracy are those over images, not over batches."""
    meter = PassMeter(CPU)
    meter.add(StepResult(torch.tensor(1.0), torch.tensor(3)), 3)
    meter.add(StepResult(torch.tensor(5.0), torch.tensor(0)), 1)

    assert meter.read() == (2.0, 0.75, 4)


def test_pass_meter_remembers_a_loss_that_is_not_finite() -> None:
    """One step without a finite loss shows in every later reading."""
    meter = PassMeter(CPU)
    meter.add(StepResult(torch.tensor(math.nan), torch.tensor(0)), 3)
    meter.add(StepResult(torch.tensor(1.0), torch.tensor(1)), 3)

    assert math.isnan(meter.read().loss)


def test_utilization_is_the_mean_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML is asked for the GPU with the device's UUID, again and again, until it refuses."""
    asked = []
    answers = iter([40, 60])
    over = threading.Event()

    def handle(uuid: str) -> str:
        asked.append(uuid)
        return "handle"

    class _NVMLError(Exception):
        """As NVML's."""

    def rates(_: str) -> SimpleNamespace:
        if (answer := next(answers, None)) is None:
            over.set()
            raise _NVMLError
        return SimpleNamespace(gpu=answer)

    nvml = ModuleType("pynvml")
    vars(nvml).update(
        NVMLError=_NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetUtilizationRates=rates,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="u-1"))
    with UtilizationSampler(torch.device("cuda", 0)) as sampler:
        assert over.wait(240)

    assert asked == ["GPU-u-1"]
    assert sampler.mean() == 0.5


def test_no_utilization_on_the_cpu() -> None:
    """Without a GPU there is no figure, rather than a zero."""
    with UtilizationSampler(CPU) as sampler:
        pass

    assert sampler.mean() is None


def test_machine_is_described_without_its_name() -> None:
    """The facts name processor, cores and versions, and not the host."""
    facts = machine(CPU)

    assert facts["torch"] == torch.__version__
    assert facts["cpu"]
    assert platform.node() not in facts.values()
