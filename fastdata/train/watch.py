"""A run from outside: the profiler's trace, and scalars for TensorBoard."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import profiler

from fastdata.errors import MissingExtraError, OptionError
from fastdata.train import ranks

_WAIT, _ACTIVE = 2, 5  # steps that are let pass, and steps that are recorded


class Watch:
    """Profiler and TensorBoard of the first rank; on the others it does nothing."""

    def __init__(
        self,
        *,
        profile: Path | None,
        tensorboard: Path | None,
        device: torch.device,
        steps: int,
    ) -> None:
        """Open what was asked for; the profiler begins when the watch is entered.

        Args:
            profile: File for a trace of a few steps in Chrome's format; None for none.
            tensorboard: Folder for scalars; None for none.
            device: Where the steps run.
            steps: How many there will be.

        Raises:
            MissingExtraError: TensorBoard is not installed.
            OptionError: The trace's folder does not exist, or there are too few steps.
        """
        self._open = ExitStack()
        self._profiler: Any = None
        self._writer: Any = None
        if ranks.number() > 0:
            return
        if profile is not None:
            self._profiler = _profiler(profile, device, steps)
        if tensorboard is not None:
            self._writer = _writer(tensorboard)

    def __enter__(self) -> Self:
        """Begin."""
        if self._profiler is not None:
            self._open.enter_context(self._profiler)
        if self._writer is not None:
            self._open.callback(self._writer.close)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write what is not written yet."""
        self._open.close()

    def step(self) -> None:
        """A step is done."""
        if self._profiler is not None:
            self._profiler.step()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Note values behind a step, by their names in TensorBoard."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)


def _profiler(path: Path, device: torch.device, steps: int) -> Any:
    if steps < 2:
        raise OptionError(f"profile needs 2 steps or more, this run has {steps}; train longer")
    if path.is_dir():
        raise OptionError(f"profile: {path} is a folder; name a file for the trace")
    if not path.parent.is_dir():
        raise OptionError(f"profile: the folder {path.parent} does not exist; make it")
    activities = [profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(profiler.ProfilerActivity.CUDA)
    active = min(_ACTIVE, steps - 1)
    return profiler.profile(
        activities=activities,
        schedule=profiler.schedule(
            wait=min(_WAIT, steps - 1 - active), warmup=1, active=active, repeat=1
        ),
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    )


def _writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError(
            "scalars need TensorBoard; install it with: pip install tensorboard"
        ) from error
    return SummaryWriter(str(folder))
