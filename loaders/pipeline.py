"""Batches on their way: begun ahead of time, waited for, mended, sent to the device."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fastdata.batch.fields import FieldReader, Fields
from fastdata.batch.fill import Filling, Fills, Work
from fastdata.batch.source import Ids
from fastdata.device.slots import Layout, Parts, Ring
from fastdata.device.transfer import Arrived, InFlight, Transfer
from fastdata.errors import OptionError, StalledError
from fastdata.loaders.replace import Replacer, Target
from fastdata.plan.epochs import augmentation_keys

_DEADLINE = 600.0  # seconds; far beyond any decode, so that only hanging storage meets it
_LOOK = 0.2  # seconds between two looks at pending signals: Ctrl-C must end a wait


@dataclass(frozen=True)
class Planned:
    """A batch of this rank, as the order has it.

    Attributes:
        epoch: Its epoch.
        start: First position of the global batch in the epoch.
        end: Position behind it.
        positions: (N,) positions of this rank's samples.
        ids: (N,) samples.
        copies: (N,) which copy of its sample each is.
        valid: (N,) False where a place only fills up the batch.
    """

    epoch: int
    start: int
    end: int
    positions: Ids
    ids: Ids
    copies: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]


@dataclass
class _Begun:
    planned: Planned
    memory: torch.Tensor  # (size,) uint8, lent by the ring
    parts: Parts  # of it
    fill: Filling
    fields: Fields | None
    arriving: InFlight | None = None


class Pipeline:
    """Fills the batches of a plan in their order, some ahead of the one in use."""

    def __init__(
        self,
        filler: Fills,
        layout: Layout,
        ring: Ring,
        transfer: Transfer,
        *,
        reader: FieldReader | None,
        prefetch: int,
        replacer: Replacer | None,
        where: str,
    ) -> None:
        """Take over what it drives.

        Args:
            filler: Decodes.
            layout: Of a batch in a buffer.
            ring: Buffers.
            transfer: To the device, for at least ``prefetch + 1`` batches at a time.
            reader: Reads fields and masks, where these are wanted.
            prefetch: Batches begun ahead of the one in use.
            replacer: Mends batches; without it a bad sample is an error.
            where: The data set, for errors.
        """
        self._filler = filler
        self._layout = layout
        self._ring = ring
        self._transfer = transfer
        self._reader = reader
        self._prefetch = prefetch
        self._replacer = replacer
        self._where = where
        self._plan: Iterator[Planned] = iter(())
        self._begun: deque[_Begun] = deque()
        self.stopped = False

    @property
    def replaced(self) -> int:
        """Bad samples replaced so far."""
        return 0 if self._replacer is None else self._replacer.replaced

    @property
    def quarantined(self) -> Sequence[Mapping[str, object]]:
        """What is known of them."""
        return () if self._replacer is None else tuple(self._replacer.quarantine.entries)

    def next_is(self, epoch: int, start: int) -> bool:
        """Whether the next batch was begun already and is the one at this place."""
        if not self._begun:
            return False
        planned = self._begun[0].planned
        return (planned.epoch, planned.start) == (epoch, start)

    def restart(self, plan: Iterator[Planned]) -> None:
        """Drop what was begun, and go on with another plan, which never ends."""
        self.discard()
        self._plan = plan

    def ready(self) -> bool:
        """Whether :meth:`receive` would not wait."""
        return bool(self._begun) and self._begun[0].fill.wait(0)

    def receive(self) -> tuple[Planned, Arrived]:
        """Wait for the next batch, and begin those after it.

        After an error :meth:`discard` what was begun.

        Raises:
            StalledError: It does not arrive.
            DeviceError: It, or one after it, cannot be brought to the device.
            FastdataError: A sample is bad.
        """
        while len(self._begun) <= self._prefetch:
            self._begin(next(self._plan))
        batch = self._begun[0]
        self._wait(batch.fill)
        self._mend(batch)
        arriving = self._send(batch)
        self._begun.popleft()
        arrived = self._transfer.receive(arriving)
        for ahead in self._begun:  # what is ready is copied while this batch is used
            if not ahead.fill.wait(0) or ahead.fill.failures():
                break
            if ahead.arriving is None and not self._transfer.ready():
                break  # the device is behind; a later call begins this copy
            self._send(ahead)
        return batch.planned, arrived._replace(fields=batch.fields)

    def discard(self) -> None:
        """Drop what was begun ahead of time; threads skip what is left of it."""
        for batch in self._begun:
            batch.fill.cancel()
            if batch.arriving is not None:
                self._transfer.drop(batch.arriving)
        self._begun.clear()

    def close(self) -> None:
        """End the threads."""
        self.discard()
        self._filler.close()
        if self._reader is not None:
            self._reader.close()
        self._transfer.close()

    def _begin(self, planned: Planned) -> None:
        count, views = len(planned.ids), self._layout.views
        memory = torch.from_numpy(self._ring.lend())[: self._layout.size(count)]
        parts = self._layout.split(memory, count)
        numbers = np.repeat(np.arange(views, dtype=np.int64), count)  # (views * N,)
        ids = np.tile(planned.ids, views)
        copies = np.tile(planned.copies, views) * views + numbers
        work = Work(planned.epoch, ids, augmentation_keys(ids, copies))
        fill, fields = self._filler.submit(work, parts.pixels.numpy()), None
        if self._reader is not None:
            fields = self._reader.submit(work, count, _array(parts.masks))
            fill.add(fields)
        self._begun.append(_Begun(planned, memory, parts, fill, fields))

    def _wait(self, fill: Filling) -> None:
        """Wait for a batch, but not for ever."""
        end = time.monotonic() + _DEADLINE
        while not fill.wait(_LOOK):
            if self.stopped:
                raise OptionError("the loader was closed")
            if time.monotonic() > end:
                raise StalledError(
                    f"{self._where}: no batch for {_DEADLINE:.0f} s; does the storage answer?"
                )

    def _mend(self, batch: _Begun) -> None:
        """Replace bad samples where that is wanted; else raise the first one's error."""
        failures = batch.fill.failures()
        if self._replacer is not None:
            planned, parts = batch.planned, batch.parts
            target = Target(
                batch.fill,
                batch.fields,
                parts.pixels.numpy(),
                _array(parts.masks),
                self._layout.views,
            )
            self._replacer.mend(planned.epoch, planned.positions, planned.ids, target)
        elif failures:  # of several the first, which does not depend on timing
            raise failures[min(failures)]

    def _send(self, batch: _Begun) -> InFlight:
        """Begin to copy a filled batch to the device, if that was not done before."""
        if batch.arriving is None:
            planned, parts = batch.planned, batch.parts
            count = len(planned.ids)
            parts.labels.numpy()[:] = batch.fill.labels[:count]
            parts.valid.numpy()[:] = planned.valid
            batch.arriving = self._transfer.start(batch.memory, count)
        return batch.arriving


def _array(tensor: torch.Tensor | None) -> npt.NDArray[np.uint8] | None:
    return None if tensor is None else np.asarray(tensor.numpy(), np.uint8)
