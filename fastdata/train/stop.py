"""Signals that end a run, held back until its step is done and saved."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

import torch

from fastdata.train import ranks

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Ctrl-C and SIGTERM as a wish, which :meth:`obey` fulfils; in the main thread only.

    A second Ctrl-C acts at once, unless there are several ranks: torchrun passes it on to ranks
    that have it from the terminal already.
    """

    def __init__(self) -> None:
        """Hear nothing yet."""
        self._number = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        """Hold the signals back from now on, but for those that the process ignores."""
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
        """Let signals act as before."""
        for number in list(self._before):
            self._restore(number)

    def wished(self, device: torch.device) -> bool:
        """Whether any rank got a signal. All ranks must ask, and all get the same answer."""
        if ranks.count() == 1:
            return self._number > 0
        heard = torch.tensor(int(self._number > 0), device=device)
        return bool(ranks.add_up(heard))

    def obey(self) -> None:
        """Let the signal act as it would have when it came.

        Raises:
            KeyboardInterrupt: It was Ctrl-C, and the process has Python's handler.
            SystemExit: A handler of the caller's ran, and came back.
        """
        number = self._number or signal.SIGTERM  # another rank's, perhaps
        for mine in list(self._before):
            self._restore(mine)
        signal.raise_signal(number)
        raise SystemExit(128 + number)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        if number == signal.SIGINT and ranks.count() == 1:
            self._restore(number)

    def _restore(self, number: int) -> None:
        if number in self._before:
            signal.signal(number, self._before.pop(number))  # type: ignore[arg-type]
