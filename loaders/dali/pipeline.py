"""Batches on their way through DALI: read ahead, fed in order, taken out in order."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fastdata.batch.fill import Work
from fastdata.device.streams import brief
from fastdata.device.transfer import Arrived
from fastdata.errors import DecodeError, OptionError, StalledError
from fastdata.loaders.dali.feed import Feeder, Reading
from fastdata.loaders.dali.graph import Graph, feed
from fastdata.loaders.dali.imports import DALI
from fastdata.loaders.dali.output import arrived, take_from, take_out
from fastdata.loaders.pipeline import Planned
from fastdata.plan.epochs import augmentation_keys
from fastdata.system.threads import Owner

_DEADLINE = 600.0  # seconds, as fd.Loader has it
_LOOK = 0.2  # seconds between two looks at pending signals: Ctrl-C must end a wait


@dataclass
class _Begun:
    planned: Planned
    work: Work
    reading: Reading
    labels: torch.Tensor | None = None  # (views * N,) int64, once DALI has the images


class DALIPipeline(Owner):
    """Reads, decodes and crops the batches of a plan in their order, some ahead of the one in use.

    To :class:`fastdata.loaders.passes.Passes` it is what ``Pipeline`` is. Nothing is ever replaced:
    DALI ends at a bad sample.
    """

    replaced = 0
    quarantined = ()

    def __init__(
        self,
        dali: DALI,
        graph: Graph,
        feeder: Feeder,
        device: torch.device,
        dtype: torch.dtype | None,
        *,
        views: int,
        prefetch: int,
        where: str,
    ) -> None:
        """Nothing is built before the first batch is asked for.

        Args:
            dali: Its modules.
            graph: What it does.
            feeder: Reads.
            device: Where batches go.
            dtype: Of normalised images; None leaves what the graph gives.
            views: Crops of each sample.
            prefetch: Batches begun ahead of the one in use.
            where: The data set, for errors.
        """
        super().__init__()
        self._dali = dali
        self._graph = graph
        self._feeder = feeder
        self._device = device
        self._dtype = dtype
        self._views = views
        self._prefetch = prefetch
        self._where = where
        self._plan: Iterator[Planned] = iter(())
        self._begun: deque[_Begun] = deque()
        self._pipe: Any = None
        self._in_step = True  # what DALI was fed with is whole batches
        self.stopped = False

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

    def receive(self) -> tuple[Planned, Arrived]:
        """Wait for the next batch, and begin those after it.

        After an error :meth:`discard` what was begun.

        Raises:
            StalledError: It does not arrive.
            FastdataError: A sample is bad.
        """
        while len(self._begun) <= self._prefetch:
            self._begin(next(self._plan))
        batch = self._begun[0]
        self._wait(batch.reading)
        if batch.labels is None:
            self._feed(batch)
        self._feed_what_is_read()
        images = self._take_out()
        self._begun.popleft()
        self._feed_what_is_read()
        assert batch.labels is not None
        return batch.planned, self._arrived(batch.planned, batch.labels, images)

    def discard(self) -> None:
        """Drop what was begun ahead of time, once DALI is through with what it has of it."""
        for batch in self._begun:
            batch.reading.cancel()
        self._begun.clear()
        if self._pipe is not None and self._in_step:
            try:
                while True:
                    self._pipe.outputs()
            except StopIteration:  # it has nothing left
                return
            except RuntimeError:  # a bad image, after which it is of no use
                pass
        self._pipe, self._in_step = None, True

    def leave_to_parent(self) -> None:
        """In a forked child: keep DALI from taking down there, at the end, what has threads."""
        self._kept = None if self._pipe is None else take_from(self._pipe)

    def release(self) -> None:
        """Let DALI go without waiting for it: at the interpreter's end its modules go first."""
        for batch in self._begun:
            batch.reading.cancel()
        self._begun.clear()
        self._pipe = None

    def close(self) -> None:
        """End the threads, DALI's too."""
        self.discard()
        self.release()
        self._feeder.close()

    def _begin(self, planned: Planned) -> None:
        count = len(planned.ids)
        numbers = np.repeat(np.arange(self._views, dtype=np.int64), count)  # (views * N,)
        ids = np.tile(planned.ids, self._views)
        copies = np.tile(planned.copies, self._views) * self._views + numbers
        work = Work(planned.epoch, ids, augmentation_keys(ids, copies))
        self._begun.append(_Begun(planned, work, self._feeder.submit(work)))

    def _wait(self, reading: Reading) -> None:
        """Wait until a batch is read, but not for ever."""
        end = time.monotonic() + _DEADLINE
        while not reading.wait(_LOOK):
            if self.stopped:
                raise OptionError("the loader was closed")
            if time.monotonic() > end:
                raise StalledError(
                    f"{self._where}: no batch for {_DEADLINE:.0f} s; does the storage answer?"
                )

    def _feed_what_is_read(self) -> None:
        """Hand DALI the batches that were read, in their order."""
        for batch in self._begun:
            if batch.labels is not None:
                continue
            if not batch.reading.wait(0) or batch.reading.failed():
                return  # a failure is raised when its batch is asked for
            self._feed(batch)

    def _feed(self, batch: _Begun) -> None:
        """Hand DALI a batch, which it begins to decode.

        Raises:
            FastdataError: A sample of it is bad.
        """
        food = batch.reading.result()
        if self._pipe is None:
            self._pipe = self._graph.build(self._dali)
        self._in_step = False
        feed(self._pipe, food.encoded, food.placement)
        self._in_step = True
        batch.labels = torch.from_numpy(food.labels)

    def _take_out(self) -> torch.Tensor:
        """(views * N, h, w, 3) images of the first batch, once DALI is through with it."""
        try:
            return take_out(self._pipe, self._device)[0]
        except RuntimeError as error:
            # DALI gives no number of the sample for every kind of damage, and may be ahead
            for batch in self._begun:
                if culprit := self._feeder.culprit(batch.work):
                    raise culprit from error
            keys = self._feeder.keys(self._begun[0].work)
            raise DecodeError(
                f"{self._where}: DALI failed, OpenCV decodes the images; the first of the batch is "
                f"{keys[0]!r}: {brief(error)}"
            ) from error

    def _arrived(self, planned: Planned, labels: torch.Tensor, images: torch.Tensor) -> Arrived:
        """The batch for the current stream."""
        targets, valid = labels[: len(planned.ids)], torch.from_numpy(planned.valid)
        return arrived(images, targets, valid, self._device, self._dtype)
