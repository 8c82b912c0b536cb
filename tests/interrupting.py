"""Ctrl-C at each step of a call, without a clock: wherever Python may notice a signal."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class _Tracer:
    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, _frame: FrameType, _event: str, _arg: object) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self


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
