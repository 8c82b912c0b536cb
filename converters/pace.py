"""What limits a pack: reading, coding or writing."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from fastdata.converters.images.coding import Coded, Coding
from fastdata.system.resources import never

Limit = Literal["reading", "coding", "writing"]

_T = TypeVar("_T")


class Pace:
    """Counts what threads do and wait for.

    Args:
        workers: Number of threads that read and code.

    Attributes:
        waited: Seconds that the packing thread has waited for readers.
    """

    def __init__(self, workers: int) -> None:
        self.waited = 0.0
        self._workers = workers
        self._coding = 0.0
        self._lock = threading.Lock()
        self._started = time.perf_counter()

    def waiting(self, results: Iterator[_T]) -> Generator[_T, None, None]:
        """Yield what readers give, and count the time until it comes; closed, it stops them."""
        try:
            while True:
                before = time.perf_counter()
                result = next(results, None)
                self.waited += time.perf_counter() - before
                if result is None:
                    return
                yield result
        finally:
            if isinstance(results, Generator):
                results.close()

    def add_coding(self, seconds: float) -> None:
        """Count what one image took."""
        with self._lock:
            self._coding += seconds

    def limited_by(self, writing: float) -> Limit:
        """What the time went to.

        Args:
            writing: Seconds that the packing thread has waited for the disk.
        """
        if writing >= self.waited:
            return "writing"
        available = self._workers * (time.perf_counter() - self._started)
        return "coding" if self._coding > available / 2 else "reading"


@dataclass(frozen=True)
class TimedCoding(Coding):
    """A coding that counts its time.

    Attributes:
        pace: Where.
    """

    pace: Pace = field(default_factory=lambda: Pace(1))

    def code_file(self, data: bytes, name: str = "", stopped: Callable[[], bool] = never) -> Coded:
        """Code one image, as :meth:`Coding.code_file`."""
        before = time.perf_counter()
        try:
            return super().code_file(data, name, stopped)
        finally:
            self.pace.add_coding(time.perf_counter() - before)
