"""From the plainest training loop to the full step, each rung measured."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from fastdata.bench.climb import Settings, measure_rung
from fastdata.bench.compiler import no_compiler
from fastdata.bench.feeds import LostWorkerError
from fastdata.bench.forms import Tell, both_forms
from fastdata.bench.results import LadderReport, RungResult
from fastdata.bench.rungs import Rung, rungs
from fastdata.errors import DeviceError, OptionError
from fastdata.system import resources
from fastdata.train.device import pick_device
from fastdata.train.meter import machine
from fastdata.train.models import build
from fastdata.train.recipe import Recipe


def ladder(
    path: str | os.PathLike[str],
    *,
    work: str | os.PathLike[str] | None = None,
    model: str = "resnet18",
    size: int = 224,
    batch_size: int = 256,
    workers: int | None = None,
    device: str | torch.device | None = None,
    seconds: float = 10.0,
    steps: int | None = None,
    compile: bool = True,
    progress: Tell | None = None,
    save: Callable[[LadderReport], object] | None = None,
) -> LadderReport:
    """Train in ever better ways on the same images, and measure each.

    :func:`fastdata.bench.rungs.rungs` has the ways. Every rung builds its model anew, makes some
    untimed steps, then timed ones on real data, and with the loader stopped timed ones on a batch
    that stays on the device. What a rung needs and the machine lacks is left out, with the reason.

    The images are packed into ``work``, unless ``path`` is packed already: then they are exported
    there, for ImageFolder. A second run takes what is there.

    Args:
        path: Class folders of images, or a packed data set.
        work: Folder for the other form of the images; None means ``path`` with ``-bench`` behind.
        model: torchvision's name of the model.
        size: Side of the training crops in pixels.
        batch_size: Images a step in the upper rungs; the lowest three have a quarter of it.
        workers: Processes, later threads, that load; None leaves one or two cores to the step.
        device: Where to train; None means CUDA where there is one, else the CPU.
        seconds: Timed seconds of each rung on real data, roughly, and half of that on the
            resident batch.
        steps: Timed steps of each, in place of ``seconds``.
        compile: Whether ``torch.compile``, which takes minutes on a CPU, is one of the rungs.
        progress: Called as the work goes on.
        save: Called with the report so far after each rung, so that a run that is cut loses one.

    Raises:
        OptionError: An argument is out of range or does not fit the data or the device.
        NotADatasetError: ``path`` holds no images.
        CorruptError: It is damaged.
        DestinationError: ``work`` holds something else.
        MissingExtraError: torchvision is not installed.
    """
    loading = resources.decode_threads() if workers is None else workers
    Recipe(model=model, size=size, batch_size=batch_size)  # checks them
    _check(workers=loading, seconds=seconds, steps=steps)
    where = pick_device(device)
    build(model, classes=2, size=size)  # an unknown name is found before anything is written
    tell = progress or (lambda *_: None)
    place = None if work is None else Path(work)
    forms = both_forms(Path(path), place, batch_size=batch_size, tell=tell)
    settings = Settings(forms, model, size, where, seconds, steps)
    climb = rungs(batch_size=batch_size, workers=loading, compile=compile)
    report = LadderReport(
        path=os.fspath(path),
        folder=str(forms.folder),
        packed=str(forms.packed),
        work=str(forms.work),
        samples=forms.samples,
        classes=forms.classes,
        model=model,
        size=size,
        device=str(where),
        in_memory=forms.in_memory,
        machine=machine(where),
        rungs=(),
    )
    for number, rung in enumerate(climb):
        tell(f"rung {rung.name}", 0, 1)
        report = replace(report, rungs=(*report.rungs, _result(rung, settings)))
        tell(f"rung {rung.name}", 1, 1)
        tell("rungs", number + 1, len(climb))
        if save is not None:
            save(report)
    return report


def _result(rung: Rung, settings: Settings) -> RungResult:
    """Figures, or why there are none."""
    if rung.needs_cuda and settings.device.type != "cuda":
        return RungResult(rung, None, f"is for CUDA; this is {settings.device}")
    if rung.name == "compile" and (missing := no_compiler(settings.device)):
        return RungResult(rung, None, f"nothing compiles here: {missing}")
    try:
        return RungResult(rung, measure_rung(rung, settings))
    except (OptionError, DeviceError) as error:
        if isinstance(error, LostWorkerError | DeviceError) or isinstance(
            error.__cause__, torch.OutOfMemoryError
        ):
            return RungResult(rung, None, str(error))
        raise


def _check(*, workers: int, seconds: float, steps: int | None) -> None:
    """Arguments that nothing else checks."""
    if workers < 1:
        raise OptionError(f"workers must be 1 or more, not {workers}")
    if not 0 < seconds < float("inf"):
        raise OptionError(f"seconds must be a positive number, not {seconds}")
    if steps is not None and steps < 1:
        raise OptionError(f"steps must be 1 or more, not {steps}")
