"""Entry point of the command line; imports little, so that ``main`` soon handles Ctrl-C.

Exit codes: 0 success, 1 a check failed (such as damaged data), 2 bad input or usage,
130 interrupted, 141 broken pipe.
"""

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"  # progress bars hide it


def main() -> "NoReturn":
    """Run the command line; the module's docstring lists the exit codes."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as it is for background jobs
        signal.signal(signal.SIGINT, _interrupt)
    from fastdata.cli.standard_streams import guard_output, open_closed

    open_closed()
    guard_output()
    try:
        from fastdata.cli.commands import run

        sys.exit(run())
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, _leave)  # while threads and Python shut down


def _interrupt(number: int, frame: "FrameType | None") -> None:
    """Raise KeyboardInterrupt, but exit at once during an import.

    Half-imported modules turn it into other errors, or swallow it. Files survive the exit as they
    survive a kill.
    """
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            _leave(number, frame)
        caller = caller.f_back
    raise KeyboardInterrupt


def _leave(number: int, frame: "FrameType | None") -> "NoReturn":
    if os.isatty(2):
        os.write(2, _SHOW_CURSOR)
    os._exit(_INTERRUPTED)
