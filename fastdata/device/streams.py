"""The few calls by which a copy to a device and what reads it there keep out of each other's way.

On CUDA the copies have a stream of their own. In host memory nothing is copied, and the same calls
are made.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from fastdata.errors import DeviceError

_REASON = 400  # characters of torch's error that are passed on


def brief(error: BaseException) -> str:
    """The beginning of an error of torch's, in one line."""
    return " ".join(str(error).split())[:_REASON]


@contextmanager
def asking_for(size: int, failure: str) -> Iterator[None]:
    """Say how many bytes were asked for where torch cannot give or copy them.

    Raises:
        DeviceError: With ``failure``, ``size`` and torch's reason.
    """
    try:
        yield
    except DeviceError:  # it was said already, and more exactly
        raise
    except RuntimeError as error:  # torch.OutOfMemoryError is one too
        reason = brief(error)
        raise DeviceError(
            f"{failure}, {size} bytes were asked for: {reason}; free memory, or lower batch_size "
            "or prefetch"
        ) from error


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
            (n,) the bytes on the device, and the event behind the copy.
        """

    def wait_for(self, copied: Event, memory: torch.Tensor) -> None:
        """Let the consumer's stream, not this thread, wait for a copy into ``memory``."""

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the consumer may have of a copied buffer for as long as it likes."""

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy by the consumer's stream."""

    def mark(self) -> Event:
        """An event behind all that was asked of the consumer's stream so far."""


class _Passed:
    """The event of work that is over when the call returns."""

    def query(self) -> bool:
        """True."""
        return True


class HostStreams:
    """No device: what was filled is what is handed out."""

    where = "cpu"
    pinned = False

    def allocate(self, size: int) -> torch.Tensor:  # noqa: ARG002 (none is needed)
        """Nothing, (0,) uint8."""
        return torch.empty(0, dtype=torch.uint8, device="cpu")

    def copy(self, host: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, Event]:  # noqa: ARG002
        """The host buffer itself."""
        return host, _Passed()

    def wait_for(self, copied: Event, memory: torch.Tensor) -> None:
        """Nothing to wait for."""

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself, which keeps its buffer lent."""
        return tensor

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, made now."""
        return tensor.clone()

    def mark(self) -> Event:
        """Over already."""
        return _Passed()


class CudaStreams:
    """A CUDA device."""

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

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, as the buffer will be written to again."""
        return self.clone(tensor)

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, in memory of the current stream like any other tensor."""
        return tensor.clone()

    def mark(self) -> torch.cuda.Event:
        """An event behind the current stream's work."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event


def streams_to(device: torch.device) -> Streams:
    """The way to a usable device."""
    return CudaStreams(device) if device.type == "cuda" else HostStreams()
