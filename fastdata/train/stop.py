"""Signals that end a run, deferred until the step is done and saved."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

import torch

from fastdata.train import ranks

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Defers Ctrl-C and SIGTERM until :meth:`obey`; in the main thread only.

    A second Ctrl-C acts at once, unless there are several ranks: torchrun forwards it to ranks that
    got it from the terminal already.
    """

    def __init__(self) -> None:
        """Change no handler yet."""
        self._number = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        """Defer the signals, but for those that the process ignores."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the handlers."""
        for number in list(self._before):
            self._restore(number)

    def requested(self, device: torch.device) -> bool:
        """Whether any rank got a signal. All ranks must call it, and get the same answer."""
        if ranks.world_size() == 1:
            return self._number > 0
        heard = torch.tensor(int(self._number > 0), device=device)
        return bool(ranks.all_sum(heard))

    def obey(self) -> None:
        """Raise the deferred signal again, now with the handler that was there before.

        Raises:
            KeyboardInterrupt: It was Ctrl-C, and the process has Python's handler.
            SystemExit: The caller's own handler returned.
        """
        number = self._number or signal.SIGTERM  # 0: another rank got the signal
        for mine in list(self._before):
            self._restore(mine)
        signal.raise_signal(number)
        raise SystemExit(128 + number)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        if number == signal.SIGINT and ranks.world_size() == 1:
            self._restore(number)

    def _restore(self, number: int) -> None:
        if number in self._before:
            signal.signal(number, self._before.pop(number))  # type: ignore[arg-type]
