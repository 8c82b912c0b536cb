"""A ring of batch buffers that are used again only when nobody can see them any more."""

import queue
import weakref

import numpy as np
import numpy.typing as npt
import torch


class Ring:
    """Buffers of shape (N, H, W, 3), uint8, lent out one at a time.

    A buffer comes back when the last tensor or numpy view of it is gone, so a batch that the user
    keeps is never overwritten: the ring then grows by what is kept.
    """

    def __init__(self, shape: tuple[int, int, int, int], *, spare: int, pinned: bool) -> None:
        """Start with no buffer; each is allocated when it is first needed.

        Args:
            shape: (N, H, W, 3) of a buffer.
            spare: Free buffers to keep; what comes back beyond them is given to the system.
            pinned: Allocate page-locked memory, from which copies to the GPU are asynchronous.
        """
        self._shape = shape
        self._spare = spare
        self._pinned = pinned
        # SimpleQueue.put may be called from a finalizer that interrupts a put or get
        self._free: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()

    def lend(self) -> npt.NDArray[np.uint8]:
        """A buffer of the ring's shape, of unspecified content.

        Views of the array, and tensors made from it, keep it lent.
        """
        try:
            memory = self._free.get_nowait()
        except queue.Empty:
            memory = torch.empty(self._shape, dtype=torch.uint8, pin_memory=self._pinned)
        lease = memory.numpy()  # a new object each time: its end is the end of this lending
        weakref.finalize(lease, self._take_back, memory).atexit = False
        return np.asarray(lease, np.uint8)

    def _take_back(self, memory: torch.Tensor) -> None:
        if self._free.qsize() < self._spare:
            self._free.put(memory)
