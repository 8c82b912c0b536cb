"""Standard input, output and errors of the process, made safe to use."""

import io
import os
import sys
from typing import Any, TextIO

_BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell shows of other programs


def open_closed() -> None:
    """Open descriptors 0 to 2 on /dev/null if they are closed.

    Otherwise the next files to be opened would get these numbers, and whatever a library prints
    would be written into them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
            os.set_inheritable(null, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (until the process ends)


def guard_output() -> None:
    """Prevent tracebacks from texts that cannot be encoded and from broken pipes."""
    sys.stdout = _text(1, sys.stdout)
    sys.stderr = _text(2, sys.stderr)


def _text(number: int, before: TextIO | None) -> TextIO:
    """A stream on an open descriptor, with the encoding of the previous one."""
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
    """A descriptor that ends the process if it cannot be written."""

    def write(self, data: Any, /) -> int:
        """Write, or raise SystemExit and discard all later output."""
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
