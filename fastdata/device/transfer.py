"""A filled buffer to the device, without making the training step wait.

The copy runs on a stream of its own while the step before it computes, into one of a few pieces of
device memory that are used in turn. Two events for each batch keep that sound:

- behind the copy: the consumer's stream waits for it, and the host buffer goes back to its ring
  only after it has passed;
- behind the last reading of the copied bytes: the device memory is written to again only after it
  has passed.

What a consumer gets was written by its own stream: it is memory like that of any other tensor. So
nothing depends on when the allocator looks whether a stream is done, as ``record_stream`` alone
would, and device memory does not grow when the host runs ahead of the device.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from fastdata.batch.fields import Fields
from fastdata.device.slots import Layout
from fastdata.device.streams import Event, Streams, asking_for, brief
from fastdata.errors import OptionError, StalledError

_DEADLINE = 600.0  # seconds; far beyond any step, so that only a hanging kernel meets it
_LOOK = 0.001  # seconds between two looks at an event: short beside a step, and no load on a core


def usable_device(device: str | torch.device) -> torch.device:
    """The device as torch has it, with its index.

    Raises:
        OptionError: This machine lacks it, or batches cannot be brought there.
    """
    count = torch.cuda.device_count()
    here = f"here are: cpu{''.join(f', cuda:{index}' for index in range(count))}"
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise OptionError(
            f"device {str(device)!r} cannot be used, {here} ({brief(error)})"
        ) from error
    if found.type not in ("cpu", "cuda"):
        raise OptionError(f"device {str(device)!r}: batches go to cpu or cuda, {here}")
    return found


@dataclass(eq=False)
class _Memory:
    """Device memory of a batch; ``read`` is the event behind the last reading of it."""

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


class Arrived(NamedTuple):
    """A batch on the device, for the current stream.

    Attributes:
        images: (V * N, 3, h, w) in channels_last: uint8, or what ``finish`` makes of it.
        labels: (N,) int64.
        valid: (N,) bool.
        masks: (V * N, h, w) uint8, or None.
        fields: What else was read with it, in host memory, or None.
    """

    images: torch.Tensor
    labels: torch.Tensor
    valid: torch.Tensor
    masks: torch.Tensor | None = None
    fields: Fields | None = None


class Transfer:
    """Takes batches to one device, a few at a time."""

    def __init__(
        self,
        streams: Streams,
        layout: Layout,
        *,
        most: int,
        slots: int,
        finish: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        """Allocate nothing yet.

        Args:
            streams: To the device.
            layout: Of a batch in memory.
            most: Samples of the largest batch.
            slots: Batches on the device at a time that were not read yet.
            finish: Makes images of (V * N, 3, h, w) uint8 in channels_last, in the current stream;
                None hands these out themselves.
        """
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
            StalledError: The device does not come to read what it has.
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
            DeviceError: The device has no memory for what is handed out.
        """
        streams = self._streams
        try:
            streams.wait_for(batch.copied, batch.memory)
            parts = self._layout.split(batch.memory, batch.samples)
            pixels = parts.pixels.permute(0, 3, 1, 2)  # (V * N, 3, h, w), channels_last
            with asking_for(pixels.numel(), f"{streams.where}: a batch cannot be handed out"):
                images = streams.keep(pixels) if self._finish is None else self._finish(pixels)
                labels, valid = streams.clone(parts.labels), streams.clone(parts.valid)
                masks = None if parts.masks is None else streams.keep(parts.masks)
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
        """Wait for the device, but not for ever, and so that Ctrl-C ends it."""
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
