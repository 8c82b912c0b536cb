"""A device that is late: its streams, simulated in host memory."""

import ctypes
import random
from collections import deque
from collections.abc import Callable

import torch

from fastdata.device.transfer import Event


class LateEvent:
    """An event of :class:`LateStreams`; asking it lets time pass."""

    def __init__(self, streams: "LateStreams", kind: str) -> None:
        """Not passed yet."""
        self.passed = False
        self._streams = streams
        self._kind = kind

    def query(self) -> bool:
        """Whether it was passed, or ``streams.lie`` says that nobody waits for its kind."""
        self._streams.pass_time()
        return self.passed or self._streams.lie == self._kind


class LateStreams:
    """Copies and reads that happen late, each stream in its order, with the bytes of that time.

    Attributes:
        stall: Share of the time in which the consumer's stream stands still.
        lie: ``"copied"``, ``"read"`` or ``"wait"``: the one thing that nobody waits for.
        failing: What the next allocation or copy raises.
        allocated: Pieces of device memory so far.
    """

    where = "late:0"
    pinned = False  # as far as torch knows

    def __init__(self, seed: int, *, stall: float = 0.9, lie: str = "") -> None:
        """Everything that happens is a function of ``seed`` and the calls."""
        self.stall = stall
        self.lie = lie
        self.failing: dict[str, Exception] = {}
        self.allocated = 0
        self._random = random.Random(seed)  # noqa: S311 (no secrets)
        self._copies: deque[Callable[[], bool]] = deque()  # work; False where it has to wait
        self._reads: deque[Callable[[], bool]] = deque()

    def pass_time(self) -> None:
        """Do a little of what was asked for."""
        for _ in range(self._random.randrange(10)):
            reads = self._random.random() >= self.stall
            self._do(self._reads if reads else self._copies)

    def finish(self) -> None:
        """Do all of it."""
        while self._copies or self._reads:
            self._do(self._copies)
            self._do(self._reads)

    def allocate(self, size: int) -> torch.Tensor:
        """Memory that holds something else."""
        if "allocate" in self.failing:
            raise self.failing["allocate"]
        self.allocated += 1
        return torch.full((size,), 0xEE, dtype=torch.uint8)

    def copy(self, host: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, LateEvent]:
        """Copy later what the host buffer holds then."""
        if "copy" in self.failing:
            raise self.failing["copy"]
        there = memory[: len(host)]
        # a reference to the buffer would keep it lent: a device knows its address alone
        address = (ctypes.c_uint8 * len(host)).from_address(host.data_ptr())
        source = torch.frombuffer(address, dtype=torch.uint8)
        event = LateEvent(self, "copied")
        self._copies.append(lambda: _done(there.copy_(source)))
        self._copies.append(lambda: _pass(event))
        return there, event

    def wait_for(self, copied: Event, memory: torch.Tensor) -> None:  # noqa: ARG002
        """Hold up the reads behind this, not the caller."""
        assert isinstance(copied, LateEvent)
        if self.lie != "wait":
            self._reads.append(lambda: copied.passed)

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """Read later."""
        out = torch.full_like(tensor, 1)
        self._reads.append(lambda: _done(out.copy_(tensor)))
        return out

    def mark(self) -> LateEvent:
        """Pass it once all reads before it are done."""
        event = LateEvent(self, "read")
        self._reads.append(lambda: _pass(event))
        return event

    def _do(self, stream: deque[Callable[[], bool]]) -> None:
        if stream and stream[0]():
            stream.popleft()


def _done(_: torch.Tensor) -> bool:
    return True


def _pass(event: LateEvent) -> bool:
    event.passed = True
    return True
