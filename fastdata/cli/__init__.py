"""Where the command line begins. As little as can be is imported before ``main`` handles Ctrl-C.

Exit codes: 0 done, 1 a check failed (damaged data), 2 bad input or usage, 130 interrupted,
141 whoever read the output is gone.
"""

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"  # which a progress bar hides


def main() -> "NoReturn":
    """Run the command line; the module says which exit code means what."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for jobs in the background
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
            signal.signal(signal.SIGINT, _leave)  # while threads end, and Python does


def _interrupt(number: int, frame: "FrameType | None") -> None:
    """Raise KeyboardInterrupt, but leave at once within an import.

    A module that is half imported turns it into other errors, or prints and drops it. Whatever is
    being written survives that as it survives a kill.
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
