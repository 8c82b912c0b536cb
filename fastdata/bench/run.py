"""The ladder: from the plainest training loop to the full step, each rung measured."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from fastdata.bench.feeds import LostWorkerError
from fastdata.bench.forms import Forms, Tell, both_forms
from fastdata.bench.measure import measure_rung
from fastdata.bench.results import LadderReport, RungResult
from fastdata.bench.rungs import LadderSettings, Rung, rungs
from fastdata.errors import DeviceError, OptionError
from fastdata.system import resources
from fastdata.train.device import pick_device
from fastdata.train.meter import machine
from fastdata.train.models import build

_SETTINGS = LadderSettings()
_REASON = 200  # characters of a compiler's error that are passed on


def ladder(
    path: str | os.PathLike[str],
    settings: LadderSettings = _SETTINGS,
    *,
    work: str | os.PathLike[str] | None = None,
    progress: Tell | None = None,
    save: Callable[[LadderReport], object] | None = None,
) -> LadderReport:
    """Train on the same images in ever better ways, and measure each.

    :func:`fastdata.bench.rungs.rungs` lists the ways. Every rung builds a fresh model, makes some
    untimed steps, then timed ones on real data, and with the loader stopped timed ones on a batch
    that stays on the device. A rung that needs what the machine lacks is left out, with the reason.

    The images are packed into ``work``. If ``path`` is packed already, they are exported there
    instead, for ImageFolder. A second run uses what the first one wrote.

    Args:
        path: Class folders of images, or a packed data set.
        settings: Model, batches, device and time.
        work: Folder for the other form of the images; None is ``path`` with ``-bench`` appended.
        progress: Called with what is being done, how much of it is done, and how much there is.
        save: Called with the report so far after each rung, so that an interrupted run loses one.

    Raises:
        OptionError: An argument does not fit the data or the device.
        NotADatasetError: There are no images at ``path``.
        CorruptError: The data set is damaged.
        DestinationError: ``work`` holds something else.
        MissingExtraError: torchvision is not installed.
    """
    device = pick_device(settings.device)
    build(settings.model, classes=2, size=settings.size)  # fails before anything is written
    workers = resources.decode_threads() if settings.workers is None else settings.workers
    tell = progress or (lambda *_: None)
    folder = None if work is None else Path(work)
    forms = both_forms(Path(path), folder, batch_size=settings.batch_size, tell=tell)
    climb = rungs(batch_size=settings.batch_size, workers=workers, compile=settings.compile)
    report = LadderReport(
        path=os.fspath(path),
        folder=str(forms.folder),
        packed=str(forms.packed),
        work=str(forms.work),
        samples=forms.samples,
        classes=forms.classes,
        model=settings.model,
        size=settings.size,
        device=str(device),
        in_memory=forms.in_memory,
        machine=machine(device),
        rungs=(),
    )
    for number, rung in enumerate(climb):
        # Both ends are reported: bars show the name of a rung while it is measured.
        tell(f"rung {rung.name}", 0, 1)
        result = _result(rung, settings, forms, device)
        report = replace(report, rungs=(*report.rungs, result))
        tell(f"rung {rung.name}", 1, 1)
        tell("rungs", number + 1, len(climb))
        if save is not None:
            save(report)
    return report


def _result(rung: Rung, settings: LadderSettings, forms: Forms, device: torch.device) -> RungResult:
    """The rung's figures, or why it has none."""
    if rung.needs_cuda and device.type != "cuda":
        return RungResult(rung, None, f"it needs CUDA; this is {device}")
    if rung.name == "compile" and (reason := _why_not_compiled(device)):
        return RungResult(rung, None, f"nothing compiles here: {reason}")
    try:
        return RungResult(rung, measure_rung(rung, settings, forms, device))
    except (LostWorkerError, DeviceError) as error:
        return RungResult(rung, None, str(error))
    except OptionError as error:
        if isinstance(error.__cause__, torch.OutOfMemoryError):
            return RungResult(rung, None, str(error))
        raise


def _why_not_compiled(device: torch.device) -> str:
    """Why a small function cannot be compiled for the device; empty if it can.

    On a CPU this needs a C++ compiler, on CUDA Triton and a C compiler.
    """
    try:
        torch.compile(_small)(torch.ones(8, device=device))
    except (RuntimeError, OSError) as error:  # all that the compiler raises derives from them
        return " ".join(str(error).split())[:_REASON]
    return ""


def _small(values: torch.Tensor) -> torch.Tensor:
    return values * 2 + 1
