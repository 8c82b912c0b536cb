"""Batches in host memory: their layout in a buffer, a ring of buffers, and handing them out.

A buffer is used again only when nobody can see it any more.
"""

import queue
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fastdata.batch.fields import Fields
from fastdata.errors import DeviceError

Bytes = npt.NDArray[np.uint8]
Finish = Callable[[torch.Tensor], torch.Tensor]
"""From (V * N, 3, h, w) uint8 in channels_last, in the current stream, to the images of a batch."""

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


class Parts(NamedTuple):
    """The parts of a batch, as views of its memory.

    Attributes:
        pixels: (V * N, h, w, 3) uint8.
        labels: (N,) int64.
        valid: (N,) bool; see :class:`fastdata.batch.batch.Batch`.
        masks: (V * N, h, w) uint8, or None.
    """

    pixels: torch.Tensor
    labels: torch.Tensor
    valid: torch.Tensor
    masks: torch.Tensor | None


class Layout(NamedTuple):
    """The layout of a batch in one piece of memory, so that one copy takes it to a device.

    Attributes:
        shape: Height and width of the images.
        views: Views V of each sample.
        masks: Whether each image has a mask.
    """

    shape: tuple[int, int]
    views: int = 1
    masks: bool = False

    def size(self, count: int) -> int:
        """Bytes of a batch of N samples."""
        return self._labels_at(count) + 9 * count + self.masks * self._pixels(count) // 3

    def split(self, memory: torch.Tensor, count: int) -> Parts:
        """Find the parts of a batch of N samples.

        Args:
            memory: (size,) uint8 or longer, on any device, aligned to 8 bytes.
            count: N.
        """
        height, width = self.shape
        start = self._labels_at(count)
        end = start + 8 * count
        pixels = memory[: self._pixels(count)]
        masks = None
        if self.masks:
            masks = memory[end + count : self.size(count)]
            masks = masks.view(self.views * count, height, width)
        return Parts(
            pixels.view(self.views * count, height, width, 3),
            memory[start:end].view(torch.int64),
            memory[end : end + count].view(torch.bool),
            masks,
        )

    def _pixels(self, count: int) -> int:
        return self.views * count * self.shape[0] * self.shape[1] * 3

    def _labels_at(self, count: int) -> int:
        return -(-self._pixels(count) // 8) * 8


class Ring:
    """Buffers of one size, lent out one at a time.

    A buffer comes back when the last tensor or numpy view of it is gone, so a batch that the user
    keeps is never overwritten: the ring then grows by one.
    """

    def __init__(self, size: int, *, spare: int, pinned: bool) -> None:
        """Start with no buffer; each is allocated when it is first needed.

        Args:
            size: Bytes of a buffer.
            spare: Free buffers to keep; more than that are given back to the system.
            pinned: Allocate page-locked memory, from which copies to the GPU are asynchronous.
        """
        self._size = size
        self._spare = spare
        self._pinned = pinned
        self._lent: dict[int, tuple[weakref.ref[Bytes], torch.Tensor]] = {}
        self._ended: queue.SimpleQueue[weakref.ref[Bytes]] = queue.SimpleQueue()
        self._free: list[torch.Tensor] = []

    def lend(self) -> Bytes:
        """A buffer, (size,) uint8, of unspecified content.

        Views of the array, and tensors made from it, keep it lent.

        Raises:
            DeviceError: There is no memory for one, or it cannot be page-locked.
        """
        self._take_back()
        memory = self._free.pop() if self._free else self._allocate()
        lease = memory.numpy()  # a new object each time: its end is the end of this lending
        # No Python runs at its end, only a method written in C: a Ctrl-C that Python notices while
        # it runs a callback is printed and lost.
        end = weakref.ref(lease, self._ended.put)
        self._lent[id(end)] = end, memory  # not reached where a Ctrl-C comes just now
        return np.asarray(lease, np.uint8)

    def _allocate(self) -> torch.Tensor:
        kind = "page-locked" if self._pinned else "host"
        with asking_for(self._size, f"no {kind} memory for a batch"):
            # the device is named: torch.set_default_device would move the buffer elsewhere
            return torch.empty(self._size, dtype=torch.uint8, device="cpu", pin_memory=self._pinned)

    def _take_back(self) -> None:
        """Reuse the buffers that came back; beyond the spare ones they go to the system."""
        while not self._ended.empty():
            lent = self._lent.pop(id(self._ended.get_nowait()), None)  # None: see lend()
            if lent is not None and len(self._free) < self._spare:
                self._free.append(lent[1])


class Arrived(NamedTuple):
    """A batch where the consumer wants it, for the current stream.

    Attributes:
        images: (V * N, 3, h, w) in channels_last: uint8, or normalised floats.
        labels: (N,) int64.
        valid: (N,) bool.
        masks: (V * N, h, w) uint8, or None.
        fields: Its fields, in host memory, or None.
    """

    images: torch.Tensor
    labels: torch.Tensor
    valid: torch.Tensor
    masks: torch.Tensor | None = None
    fields: Fields | None = None


class HostTransfer:
    """Hands out batches in host memory, by the calls of ``fastdata.device.transfer.Transfer``.

    Nothing is copied but labels and ``valid``, which would keep the whole buffer lent.
    """

    pinned = False

    def __init__(self, layout: Layout, finish: Finish | None = None) -> None:
        """``finish`` makes the images; None hands out the pixels themselves."""
        self._layout = layout
        self._finish = finish

    def ready(self) -> bool:
        """Whether :meth:`start` would not wait."""
        return True

    def start(self, host: torch.Tensor, count: int) -> tuple[torch.Tensor, int]:
        """Begin to hand out a batch of ``count`` samples."""
        return host, count

    def receive(self, batch: tuple[torch.Tensor, int]) -> Arrived:
        """The batch.

        Raises:
            DeviceError: There is no memory for it.
        """
        parts = self._layout.split(*batch)
        pixels = parts.pixels.permute(0, 3, 1, 2)  # (V * N, 3, h, w), channels_last
        with asking_for(pixels.numel(), "cpu: a batch cannot be handed out"):
            images = pixels if self._finish is None else self._finish(pixels)
            return Arrived(images, parts.labels.clone(), parts.valid.clone(), parts.masks)

    def drop(self, batch: tuple[torch.Tensor, int]) -> None:
        """Give up a batch that was not received."""

    def close(self) -> None:
        """Nothing is under way."""
