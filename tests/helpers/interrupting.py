"""Ctrl-C at each step of a call, without a clock: wherever Python may notice a signal."""

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class _Tracer:
    def __init__(self, step: int) -> None:
        self.left = step
        self._entered: set[tuple[int, int]] = set()  # frames, by id, and lines of theirs

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line" and self._leaves_with(frame):
            return self
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self

    def _leaves_with(self, frame: FrameType) -> bool:
        """Whether a with statement ends here: between its body and its end no signal is noticed."""
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if not text.lstrip().startswith("with "):
            return False
        place = id(frame), frame.f_lineno
        if place in self._entered:
            return True
        self._entered.add(place)
        return False


def interrupted(step: int, call: Callable[[], object]) -> bool:
    """Call something that a Ctrl-C interrupts at a step; False where it ended before that."""
    before = sys.gettrace()
    try:
        sys.settrace(_Tracer(step))
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
