"""Standard input, output and errors of the process, made safe to use."""

import io
import os
import sys
from typing import Any, TextIO

_BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell shows of other programs


def open_closed() -> None:
    """Open descriptors 0 to 2 on /dev/null where they are closed.

    The next files that are opened would get their numbers, and what a library prints would be
    written into them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(null, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for as long as the process)


def guard_output() -> None:
    """Let no text and no reader that went away end the process with a traceback."""
    sys.stdout = _text(1, sys.stdout)
    sys.stderr = _text(2, sys.stderr)


def _text(number: int, before: TextIO | None) -> TextIO:
    """A stream on a descriptor that is open, in the encoding that it had."""
    if before is not None:
        before.flush()
    raw = _Output(number, "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=None if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=number == 2 or raw.isatty(),
    )


class _Output(io.FileIO):
    """A descriptor that ends the process where it cannot be written."""

    def write(self, data: Any, /) -> int:
        """Write, or raise SystemExit; what comes after it goes nowhere."""
        try:
            return super().write(data)
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if isinstance(error, BrokenPipeError):
                raise SystemExit(_BROKEN_PIPE) from None
            os.write(2, f"error: cannot write the output: {error.strerror}\n".encode())
            raise SystemExit(2) from None
