"""Batches on their way through DALI: read ahead, fed in order, taken out in order."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from fastdata.batch.decoder import Work
from fastdata.device.slots import Arrived, brief
from fastdata.errors import DecodeError
from fastdata.loaders.dali.feed import Feeder, Reading
from fastdata.loaders.dali.graph import Graph, feed
from fastdata.loaders.dali.imports import DALI
from fastdata.loaders.pipeline import Pipeline, Planned
from fastdata.system.threads import Owner

_DALI_FLOATS = (torch.float32, torch.float16)


@dataclass
class _Reading:
    planned: Planned
    work: Work
    pending: Reading
    labels: torch.Tensor | None = None  # (views * N,) int64, once DALI has the images


class DALIPipeline(Owner, Pipeline[_Reading]):
    """The pipeline of :class:`fastdata.DALILoader`: our reading and crops, DALI's operators.

    Nothing is ever replaced: DALI ends at a bad sample.
    """

    def __init__(
        self,
        dali: DALI,
        graph: Graph,
        feeder: Feeder,
        device: torch.device,
        dtype: torch.dtype,
        *,
        views: int,
        prefetch: int,
        where: str,
    ) -> None:
        """Nothing is built before the first batch is asked for.

        Args:
            dali: Its modules.
            graph: Its operators.
            feeder: Reads.
            device: Where batches go.
            dtype: Of normalised images.
            views: Crops of each sample.
            prefetch: Batches begun ahead of the one in use.
            where: The data set, for errors.
        """
        Owner.__init__(self)
        Pipeline.__init__(self, views, prefetch, where)
        self._dali = dali
        self._graph = graph
        self._feeder = feeder
        self._device = device
        # a type that DALI lacks is torch's to make
        self._cast_to = None if graph.normalize is None or dtype in _DALI_FLOATS else dtype
        self._pipe: Any = None
        self._in_step = True  # DALI was fed with whole batches

    def discard(self) -> None:
        """Drop the batches begun ahead, once DALI is done with those that it has."""
        self._cancel()
        if self._pipe is not None and self._in_step:
            try:
                while True:
                    self._pipe.outputs()
            except StopIteration:  # it has nothing left
                return
            except RuntimeError:  # a bad image, after which it is of no use
                pass
        self._pipe, self._in_step = None, True

    def release(self) -> None:
        """Let DALI go without waiting for it: at the interpreter's end its modules go first."""
        self._cancel()
        self._pipe = None

    def leave_to_parent(self) -> None:
        """In a forked child: keep DALI from shutting down the parent's threads at its end."""
        if self._pipe is not None:
            self._kept, self._pipe._pipe = self._pipe._pipe, None  # noqa: SLF001 - no other way

    def close(self) -> None:
        """End the threads, DALI's too."""
        self.discard()
        self.release()
        self._feeder.close()

    def _cancel(self) -> None:
        for batch in self._begun:
            batch.pending.cancel()
        self._begun.clear()

    def _begin(self, planned: Planned, work: Work) -> _Reading:
        return _Reading(planned, work, self._feeder.submit(work))

    def _deliver(self, batch: _Reading) -> Arrived:
        if batch.labels is None:
            self._feed(batch)
        self._feed_what_is_read()
        images = self._take_out()
        self._begun.popleft()
        self._feed_what_is_read()
        assert batch.labels is not None
        return self._arrived(batch.planned, batch.labels, images)

    def _feed_what_is_read(self) -> None:
        """Hand DALI the batches that were read, in their order."""
        for batch in self._begun:
            if batch.labels is not None:
                continue
            if not batch.pending.wait(0) or batch.pending.failed():
                return  # a failure is raised when its batch is asked for
            self._feed(batch)

    def _feed(self, batch: _Reading) -> None:
        """Hand DALI a batch, which it begins to decode.

        Raises:
            FastdataError: A sample of it is bad.
        """
        read = batch.pending.result()
        if self._pipe is None:
            self._pipe = self._graph.build(self._dali)
        self._in_step = False
        feed(self._pipe, read)
        self._in_step = True
        batch.labels = torch.from_numpy(read.labels)

    def _take_out(self) -> torch.Tensor:
        """(views * N, h, w, 3) images of the first batch, once DALI is through with it.

        Nothing is copied: the memory is DALI's, and goes back to it when the last tensor of it is
        gone, on CUDA in the order of the stream that is current now.
        """
        cuda = self._device.type == "cuda"
        stream = torch.cuda.current_stream(self._device) if cuda else None
        try:
            (images,) = self._pipe.outputs(cuda_stream=stream)
            return from_dlpack(images.as_tensor())
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
        pixels = images.permute(0, 3, 1, 2)  # (views * N, 3, h, w), channels_last
        if self._cast_to is not None:
            pixels = pixels.to(self._cast_to)
        labels, valid = labels[: len(planned.ids)], torch.from_numpy(planned.valid)
        if self._device.type == "cuda":  # page-locked, so that the copies are not waited for
            labels = labels.pin_memory().to(self._device, non_blocking=True)
            valid = valid.pin_memory().to(self._device, non_blocking=True)
        return Arrived(pixels, labels, valid)
