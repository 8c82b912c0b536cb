"""Copies a filled buffer to the device without making the training step wait.

The copy runs on a stream of its own while the step before it computes, into one of a few pieces of
device memory that are used in turn. Two events for each batch keep that sound:

- after the copy: the consumer's stream waits for it, and the host buffer goes back to its ring
  only once it has passed;
- after the last reading of the copied bytes: the device memory is written to again only once it
  has passed.

The tensors of a batch are written by the consumer's own stream, like any other tensor. So
nothing depends on when the allocator looks whether a stream is done, as ``record_stream`` alone
would, and device memory does not grow when the host runs ahead of the device.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from fastdata.device.slots import Arrived, Finish, Layout, asking_for
from fastdata.errors import StalledError

_DEADLINE = 600.0  # seconds; far beyond any step, so that only a hanging kernel meets it
_LOOK = 0.001  # seconds between two looks at an event: short beside a step, and no load on a core


class Event(Protocol):
    """A place in the work of a device."""

    def query(self) -> bool:
        """Whether all that was asked of that stream before it is over; does not wait."""


class Streams(Protocol):
    """A stream of copies to one device beside the consumer's, the current one of its thread.

    Attributes:
        where: The device, for errors.
        pinned: Whether host buffers must be page-locked.
    """

    where: str
    pinned: bool

    def allocate(self, size: int) -> torch.Tensor:
        """Memory on the device, (size,) uint8, that :meth:`copy` may be given."""

    def copy(self, host: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, Event]:
        """Begin to copy; returns at once.

        Args:
            host: (n,) uint8; not to be written to until the event has passed.
            memory: From :meth:`allocate`; nothing may read it any more.

        Returns:
            (n,) the bytes on the device, and the event after the copy.
        """

    def wait_for(self, copied: Event, memory: torch.Tensor) -> None:
        """Let the consumer's stream, not this thread, wait for a copy into ``memory``."""

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy by the consumer's stream, for as long as the consumer likes."""

    def mark(self) -> Event:
        """An event after all that was asked of the consumer's stream so far."""


class CudaStreams:
    """The :class:`Streams` of a CUDA device."""

    pinned = True

    def __init__(self, device: torch.device) -> None:
        """Make the stream for copies to ``device``, which has its index."""
        self.where = str(device)
        self._device = device
        self._copies = torch.cuda.Stream(device)

    def allocate(self, size: int) -> torch.Tensor:
        """Memory of the copying stream's pool: it is free when work there comes to use it."""
        with torch.cuda.stream(self._copies):
            return torch.empty(size, dtype=torch.uint8, device=self._device)

    def copy(self, host: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, Event]:
        """Begin to copy, see :class:`Streams`; ``host`` is page-locked, else this would wait."""
        with torch.cuda.stream(self._copies):
            there = memory[: len(host)]
            there.copy_(host, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self._copies)
        return there, copied

    def wait_for(self, copied: Event, memory: torch.Tensor) -> None:
        """Let the current stream wait for a copy."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copied)  # type: ignore[arg-type]  # it is one of copy's
        # Only for the end of a loader: memory that it frees goes back to the pool of the copying
        # stream, and may not be used there before the last reader is done.
        memory.record_stream(stream)

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, in memory of the current stream like any other tensor."""
        return tensor.clone()

    def mark(self) -> torch.cuda.Event:
        """An event after the current stream's work."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event


@dataclass(eq=False)
class _Memory:
    """Device memory of a batch; ``read`` is the event after its last reading."""

    memory: torch.Tensor
    read: Event | None = None

    def is_read(self) -> bool:
        """Whether it may be written to."""
        return self.read is None or self.read.query()


class InFlight(NamedTuple):
    """A batch on its way; see :meth:`Transfer.start`."""

    holder: _Memory
    memory: torch.Tensor
    copied: Event
    samples: int


class Transfer:
    """Copies batches to one device, a few at a time.

    Attributes:
        pinned: Whether host buffers must be page-locked.
    """

    def __init__(
        self,
        streams: Streams,
        layout: Layout,
        *,
        most: int,
        slots: int,
        finish: Finish | None = None,
    ) -> None:
        """Allocate nothing yet.

        Args:
            streams: To the device.
            layout: Of a batch in memory.
            most: Samples of the largest batch.
            slots: Batches on the device at a time that were not read yet.
            finish: Makes the images; None hands out the pixels themselves.
        """
        self.pinned = streams.pinned
        self._streams = streams
        self._layout = layout
        self._size = layout.size(most)
        self._finish = finish
        self._free: deque[_Memory] = deque()  # in the order of their last reading
        self._missing = slots
        self._copying: deque[tuple[Event, torch.Tensor]] = deque()

    def ready(self) -> bool:
        """Whether :meth:`start` would not wait for the device."""
        return self._missing > 0 or (bool(self._free) and self._free[0].is_read())

    def start(self, host: torch.Tensor, count: int) -> InFlight:
        """Begin to copy a batch; waits only where all device memory is still to be read.

        Args:
            host: (size,) uint8, laid out as a batch of ``count``; it is held until it was copied.
            count: Samples N.

        Raises:
            DeviceError: The device has no memory for it, or the copy cannot be made.
            StalledError: The device does not read the batches that it has.
        """
        self._forget_finished()
        holder = self._take()
        try:
            with asking_for(len(host), f"{self._streams.where}: a batch cannot be copied"):
                memory, copied = self._streams.copy(host, holder.memory)
        except BaseException:
            self._free.appendleft(holder)
            raise
        if not copied.query():
            self._copying.append((copied, host))
        return InFlight(holder, memory, copied, count)

    def receive(self, batch: InFlight) -> Arrived:
        """The batch, for use by the current stream, which waits for the copy.

        Raises:
            DeviceError: The device has no memory for the batch.
        """
        streams = self._streams
        try:
            streams.wait_for(batch.copied, batch.memory)
            parts = self._layout.split(batch.memory, batch.samples)
            pixels = parts.pixels.permute(0, 3, 1, 2)  # (V * N, 3, h, w), channels_last
            with asking_for(pixels.numel(), f"{streams.where}: a batch cannot be handed out"):
                images = streams.clone(pixels) if self._finish is None else self._finish(pixels)
                labels, valid = streams.clone(parts.labels), streams.clone(parts.valid)
                masks = None if parts.masks is None else streams.clone(parts.masks)
                return Arrived(images, labels, valid, masks)
        finally:
            batch.holder.read = streams.mark()
            self._free.append(batch.holder)

    def drop(self, batch: InFlight) -> None:
        """Give up a batch that was not received; a later copy waits for its own."""
        self._free.appendleft(batch.holder)

    def close(self) -> None:
        """Wait for copies under way, so that their host buffers may be freed, and free all memory.

        Raises:
            StalledError: They do not end.
        """
        for copied, _ in self._copying:
            self._wait(copied.query)
        self._copying.clear()
        self._free.clear()

    def _take(self) -> _Memory:
        """Memory that nothing reads any more."""
        if self._missing > 0 and not (self._free and self._free[0].is_read()):
            with asking_for(self._size, f"{self._streams.where}: no memory for a batch"):
                memory = self._streams.allocate(self._size)
            self._missing -= 1
            return _Memory(memory)
        self._wait(self._free[0].is_read)
        return self._free.popleft()

    def _wait(self, over: Callable[[], bool]) -> None:
        """Wait for the device, with a deadline, and so that Ctrl-C ends it."""
        end = time.monotonic() + _DEADLINE
        while not over():
            if time.monotonic() > end:
                raise StalledError(
                    f"{self._streams.where}: nothing ended for {_DEADLINE:.0f} s; does a kernel "
                    "hang, or a rank that others wait for?"
                )
            time.sleep(_LOOK)

    def _forget_finished(self) -> None:
        """Let go of host buffers whose copies are over."""
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
