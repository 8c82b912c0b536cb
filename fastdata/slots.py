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
        self._lent: dict[int, tuple[weakref.ref[npt.NDArray[np.uint8]], torch.Tensor]] = {}
        self._ended: queue.SimpleQueue[weakref.ref[npt.NDArray[np.uint8]]] = queue.SimpleQueue()
        self._free: list[torch.Tensor] = []

    def lend(self) -> npt.NDArray[np.uint8]:
        """A buffer of the ring's shape, of unspecified content.

        Views of the array, and tensors made from it, keep it lent.
        """
        self._take_back()
        if self._free:
            memory = self._free.pop()
        else:
            memory = torch.empty(self._shape, dtype=torch.uint8, pin_memory=self._pinned)
        lease = memory.numpy()  # a new object each time: its end is the end of this lending
        # No Python runs at its end, only a method written in C: a Ctrl-C that Python notices while
        # it runs a callback is printed and lost.
        end = weakref.ref(lease, self._ended.put)
        self._lent[id(end)] = end, memory
        return np.asarray(lease, np.uint8)

    def _take_back(self) -> None:
        """Make what came back free again; beyond the spare ones it goes to the system."""
        while not self._ended.empty():
            _, memory = self._lent.pop(id(self._ended.get_nowait()))
            if len(self._free) < self._spare:
                self._free.append(memory)
