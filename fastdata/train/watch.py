"""Observing a run: the profiler's trace, and scalars for TensorBoard."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import profiler

from fastdata.errors import MissingExtraError, OptionError
from fastdata.train import ranks
from fastdata.train.recipe import Setup

_WAIT, _ACTIVE = 2, 5  # steps before recording, and recorded steps


class Watch:
    """Profiler and TensorBoard of the first rank; on the others it does nothing."""

    def __init__(self, setup: Setup, *, device: torch.device, steps: int) -> None:
        """Open the files; the profiler starts when the watch is entered.

        Args:
            setup: Its ``profile`` and ``tensorboard``.
            device: Where the steps run.
            steps: Number of steps to come.

        Raises:
            MissingExtraError: TensorBoard is not installed.
            OptionError: The trace's folder does not exist, or there are too few steps.
        """
        self._open = ExitStack()
        self._profiler: Any = None
        self._writer: Any = None
        if ranks.rank() > 0:
            return
        if setup.profile is not None:
            self._profiler = _profiler(Path(setup.profile), device, steps)
        if setup.tensorboard is not None:
            self._writer = _writer(Path(setup.tensorboard))

    def __enter__(self) -> Self:
        """Start the profiler."""
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
        """Write the trace and the scalars."""
        self._open.close()

    def step(self) -> None:
        """Tell the profiler that a step is done."""
        if self._profiler is not None:
            self._profiler.step()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Record the values after a step, by their names in TensorBoard."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)


def _profiler(path: Path, device: torch.device, steps: int) -> Any:
    if steps < 2:
        raise OptionError(f"profile needs 2 steps or more, this run has {steps}; train longer")
    if path.is_dir():
        raise OptionError(f"profile: {path} is a folder; choose a file for the trace")
    if not path.parent.is_dir():
        raise OptionError(f"profile: the folder {path.parent} does not exist; create it")
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
