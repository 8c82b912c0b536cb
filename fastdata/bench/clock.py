"""When steps end."""

import itertools
import time

import torch


class StepClock:
    """Times between the ends of steps, as the device sees them, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        """Have no marks."""
        self._device = device
        self._marks: list[torch.cuda.Event | float] = []

    def mark(self) -> None:
        """A step was handed to the device, or the first one comes next."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def durations(self) -> list[float]:
        """Seconds between each mark and the next; the device must have got to the last one."""
        return [_between(first, second) for first, second in itertools.pairwise(self._marks)]


def _between(first: torch.cuda.Event | float, second: torch.cuda.Event | float) -> float:
    if isinstance(first, float) or isinstance(second, float):
        assert isinstance(first, float)
        assert isinstance(second, float)
        return second - first
    milliseconds: float = first.elapsed_time(second)
    return milliseconds / 1000
