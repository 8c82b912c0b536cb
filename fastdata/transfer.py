"""A filled buffer to the device, without making the training step wait.

The copy runs on a stream of its own while the step before it computes. Two rules keep it sound:

- the host buffer goes back to its ring only after the event behind the copy has passed;
- the device memory is used on the consumer's stream only after that stream was told to wait for
  the same event, and ``record_stream`` keeps the allocator from handing it out again before the
  consumer's kernels are done.

On the CPU nothing is copied, and the same calls are made.
"""

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fastdata.errors import OptionError


def usable_device(device: str | torch.device) -> torch.device:
    """The device as torch has it, with its index.

    Raises:
        OptionError: This machine lacks it.
    """
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise OptionError(f"device {str(device)!r} cannot be used here: {error}") from error


class InFlight(NamedTuple):
    """A batch on its way: device tensors, and the event behind their copies (None on the CPU)."""

    images: torch.Tensor  # (N, 3, H, W) uint8, channels_last
    labels: torch.Tensor  # (N,) int64
    valid: torch.Tensor  # (N,) bool
    event: torch.cuda.Event | None


class Transfer:
    """Copies batches to one device."""

    def __init__(self, device: torch.device) -> None:
        """Make the stream for copies to ``device``."""
        self._device = device
        self._cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._cuda else None
        self._copying: deque[tuple[torch.cuda.Event, torch.Tensor]] = deque()

    def start(
        self,
        lease: npt.NDArray[np.uint8],
        labels: npt.NDArray[np.int64],
        valid: npt.NDArray[np.bool_],
    ) -> InFlight:
        """Begin to copy a batch; returns at once.

        Args:
            lease: (N, H, W, 3) uint8 from a ring, page-locked where the device is CUDA.
            labels: (N,) labels.
            valid: (N,) which samples count.
        """
        host = torch.from_numpy(lease).permute(0, 3, 1, 2)  # (N, 3, H, W), channels_last
        targets, counted = torch.from_numpy(labels), torch.from_numpy(valid)
        if self._stream is None:
            return InFlight(host, targets, counted, None)
        self._forget_finished()
        with torch.cuda.stream(self._stream):
            images = host.to(self._device, non_blocking=True)
            # these two are pageable: the driver stages them before the call returns
            targets = targets.to(self._device, non_blocking=True)
            counted = counted.to(self._device, non_blocking=True)
            event = torch.cuda.Event()
            event.record(self._stream)
        self._copying.append((event, host))
        return InFlight(images, targets, counted, event)

    def receive(self, batch: InFlight) -> InFlight:
        """Make the current stream wait for the batch, which may then be used on it."""
        if batch.event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(batch.event)
            for tensor in batch[:3]:
                tensor.record_stream(stream)
        return batch

    def close(self) -> None:
        """Wait for copies under way, so that their host buffers may be freed."""
        if self._stream is not None:
            self._stream.synchronize()
        self._copying.clear()

    def _forget_finished(self) -> None:
        """Let go of host buffers whose copies are over."""
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
