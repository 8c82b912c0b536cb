"""Batches on their way: begun ahead of time, waited for, mended, sent to the device."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdata.epochs import augmentation_keys
from fastdata.errors import StalledError
from fastdata.fill import Filler, Filling, Work
from fastdata.loaders.replace import Replacer
from fastdata.slots import Ring
from fastdata.source import Ids
from fastdata.transfer import InFlight, Transfer

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
    lease: npt.NDArray[np.uint8]  # (views * N, H, W, 3)
    fill: Filling
    arriving: InFlight | None = None


class Pipeline:
    """Fills the batches of a plan in their order, some ahead of the one in use."""

    def __init__(
        self,
        filler: Filler,
        ring: Ring,
        transfer: Transfer,
        *,
        views: int,
        prefetch: int,
        replacer: Replacer | None,
        where: str,
    ) -> None:
        """Take over what it drives.

        Args:
            filler: Decodes.
            ring: Buffers of (views * N, H, W, 3).
            transfer: To the device.
            views: Crops of each sample.
            prefetch: Batches begun ahead of the one in use.
            replacer: Mends batches; without it a bad sample is an error.
            where: The data set, for errors.
        """
        self._filler = filler
        self._ring = ring
        self._transfer = transfer
        self._views = views
        self._prefetch = prefetch
        self._replacer = replacer
        self._where = where
        self._plan: Iterator[Planned] = iter(())
        self._begun: deque[_Begun] = deque()

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

    def receive(self) -> tuple[Planned, InFlight]:
        """Wait for the next batch, and begin those after it.

        Raises:
            StalledError: It does not arrive.
            FastdataError: A sample is bad.
        """
        while len(self._begun) <= self._prefetch:
            self._begin(next(self._plan))
        batch = self._begun[0]
        self._wait(batch.fill)
        try:
            self._mend(batch)
        except BaseException:
            self.discard()
            raise
        arrived = self._transfer.receive(self._send(batch))
        self._begun.popleft()
        for ahead in self._begun:  # what is ready is copied while this batch is used
            if not ahead.fill.wait(0) or ahead.fill.failures():
                break
            self._send(ahead)
        return batch.planned, arrived

    def discard(self) -> None:
        """Drop what was begun ahead of time; threads skip what is left of it."""
        for batch in self._begun:
            batch.fill.cancel()
        self._begun.clear()

    def close(self) -> None:
        """End the threads."""
        self.discard()
        self._filler.close()
        self._transfer.close()

    def _begin(self, planned: Planned) -> None:
        count = len(planned.ids)
        lease = self._ring.lend()[: self._views * count]
        views = np.repeat(np.arange(self._views, dtype=np.int64), count)  # (views * N,)
        ids = np.tile(planned.ids, self._views)
        copies = np.tile(planned.copies, self._views) * self._views + views
        work = Work(planned.epoch, ids, augmentation_keys(ids, copies))
        self._begun.append(_Begun(planned, lease, self._filler.submit(work, lease)))

    def _wait(self, fill: Filling) -> None:
        """Wait for a batch, but not for ever."""
        end = time.monotonic() + _DEADLINE
        while not fill.wait(_LOOK):
            if time.monotonic() > end:
                raise StalledError(
                    f"{self._where}: no batch for {_DEADLINE:.0f} s; does the storage answer?"
                )

    def _mend(self, batch: _Begun) -> None:
        """Replace bad samples where that is wanted; else raise the first one's error."""
        failures = batch.fill.failures()
        if self._replacer is not None:
            planned = batch.planned
            self._replacer.mend(
                planned.epoch, planned.positions, planned.ids, batch.fill, batch.lease, self._views
            )
        elif failures:  # of several the first, which does not depend on timing
            raise failures[min(failures)]

    def _send(self, batch: _Begun) -> InFlight:
        """Begin to copy a filled batch to the device, if that was not done before."""
        if batch.arriving is None:
            planned = batch.planned
            labels = batch.fill.labels[: len(planned.ids)]
            batch.arriving = self._transfer.start(batch.lease, labels, planned.valid)
        return batch.arriving
