"""Batches on their way: begun ahead of time, waited for, mended, sent to the device."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from fastdata.batch.decoder import BatchDecoder, Decoder, PendingBatch, Work
from fastdata.batch.fields import FieldReader, Fields
from fastdata.batch.source import Ids, Source
from fastdata.batch.transform import TransformDecoder
from fastdata.device.normalize import Normalize
from fastdata.device.slots import Arrived, HostTransfer, Layout, Parts, Ring
from fastdata.device.transfer import CudaStreams, Streams, Transfer
from fastdata.errors import OptionError, StalledError
from fastdata.loaders.options import Options
from fastdata.loaders.replace import Quarantine, Replacer, Target
from fastdata.plan.epochs import BatchPlan, Epochs, augmentation_keys
from fastdata.system import resources

_DEADLINE = 600.0  # seconds; far beyond any decode, so that only hanging storage meets it
_LOOK = 0.2  # seconds between two looks at pending signals: Ctrl-C must end a wait


@dataclass(frozen=True)
class Planned:
    """A batch of this rank, as the order has it.

    Attributes:
        epoch: Its epoch.
        start: First position of the global batch in the epoch.
        end: Position after it.
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

    def work(self, views: int) -> Work:
        """The V * N images of the batch."""
        numbers = np.repeat(np.arange(views, dtype=np.int64), len(self.ids))  # (views * N,)
        ids = np.tile(self.ids, views)
        copies = np.tile(self.copies, views) * views + numbers
        return Work(self.epoch, ids, augmentation_keys(ids, copies))


class Pending(Protocol):
    """The work on a batch that is under way."""

    def wait(self, seconds: float) -> bool:
        """Wait until it is over; False if that takes longer."""


class Begun(Protocol):
    """A batch that a pipeline has begun."""

    @property
    def planned(self) -> Planned:
        """The batch."""

    @property
    def pending(self) -> Pending:
        """The work that must end before it can be delivered."""


B = TypeVar("B", bound=Begun)


class Pipeline(ABC, Generic[B]):
    """Delivers the batches of a plan in their order, and begins some ahead of the one in use.

    Attributes:
        stopped: Set by another thread that wants :meth:`receive` to end soon, by an error if need
            be.
    """

    def __init__(self, views: int, prefetch: int, where: str) -> None:
        """Begin nothing yet.

        Args:
            views: Views of each sample.
            prefetch: Batches begun ahead of the one in use.
            where: The data set, for errors.
        """
        self.stopped = False
        self._views = views
        self._prefetch = prefetch
        self._where = where
        self._plan: Iterator[Planned] = iter(())
        self._begun: deque[B] = deque()

    @property
    def replaced(self) -> int:
        """Bad samples replaced so far."""
        return 0

    @property
    def quarantined(self) -> Sequence[Mapping[str, object]]:
        """An entry for each of them."""
        return ()

    def next_is(self, epoch: int, start: int) -> bool:
        """Whether the next batch was begun already and is the one at this place."""
        if not self._begun:
            return False
        planned = self._begun[0].planned
        return (planned.epoch, planned.start) == (epoch, start)

    def restart(self, plan: Iterator[Planned]) -> None:
        """Drop the batches begun ahead, and continue with another plan, which never ends."""
        self.discard()
        self._plan = plan

    def receive(self) -> tuple[Planned, Arrived]:
        """Wait for the next batch, and begin those after it.

        After an error call :meth:`discard`.

        Raises:
            StalledError: It does not arrive.
            DeviceError: It, or one after it, cannot be brought to the device.
            FastdataError: A sample is bad.
        """
        while len(self._begun) <= self._prefetch:
            planned = next(self._plan)
            self._begun.append(self._begin(planned, planned.work(self._views)))
        batch = self._begun[0]
        self._wait(batch.pending)
        return batch.planned, self._deliver(batch)

    @abstractmethod
    def discard(self) -> None:
        """Drop the batches begun ahead."""

    def release(self) -> None:
        """Drop it without waiting, at the interpreter's end too."""
        self.discard()

    @abstractmethod
    def close(self) -> None:
        """End the threads."""

    @abstractmethod
    def _begin(self, planned: Planned, work: Work) -> B:
        """Begin a batch; returns at once."""

    @abstractmethod
    def _deliver(self, batch: B) -> Arrived:
        """Take the first batch, whose work is over, out of those begun."""

    def _wait(self, pending: Pending) -> None:
        """Wait for a batch, with a deadline."""
        end = time.monotonic() + _DEADLINE
        while not pending.wait(_LOOK):
            if self.stopped:
                raise OptionError("the loader was closed")
            if time.monotonic() > end:
                raise StalledError(
                    f"{self._where}: no batch for {_DEADLINE:.0f} s; does the storage answer?"
                )


@dataclass
class _Decoding:
    planned: Planned
    memory: torch.Tensor  # (size,) uint8, lent by the ring
    parts: Parts  # of it
    pending: PendingBatch
    fields: Fields | None
    sent: Any = None  # the transfer's handle, once it was sent


class DecodingPipeline(Pipeline[_Decoding]):
    """The pipeline of :class:`fastdata.Loader`: our decoder, copies beside the training step."""

    def __init__(
        self,
        layout: Layout,
        ring: Ring,
        decoder: Decoder,
        transfer: Transfer | HostTransfer,
        reader: FieldReader | None,
        replacer: Replacer | None,
        *,
        prefetch: int,
        where: str,
    ) -> None:
        """Take over the stages that it drives.

        Args:
            layout: Of a batch in a buffer.
            ring: Buffers.
            decoder: Fills them.
            transfer: To the device, for at least ``prefetch + 1`` batches at a time.
            reader: Reads fields and masks, where these are wanted.
            replacer: Mends batches; without it a bad sample is an error.
            prefetch: Batches begun ahead of the one in use.
            where: The data set, for errors.
        """
        super().__init__(layout.views, prefetch, where)
        self._layout = layout
        self._ring = ring
        self._decoder = decoder
        self._transfer: Any = transfer  # what start() gives is the transfer's own affair
        self._reader = reader
        self._replacer = replacer

    @property
    def replaced(self) -> int:
        """Bad samples replaced so far."""
        return 0 if self._replacer is None else self._replacer.replaced

    @property
    def quarantined(self) -> Sequence[Mapping[str, object]]:
        """An entry for each of them."""
        return () if self._replacer is None else tuple(self._replacer.quarantine.entries)

    def discard(self) -> None:
        """Drop the batches begun ahead; threads skip the rest of their samples."""
        for batch in self._begun:
            batch.pending.cancel()
            if batch.sent is not None:
                self._transfer.drop(batch.sent)
        self._begun.clear()

    def close(self) -> None:
        """End the threads."""
        self.discard()
        self._decoder.close()
        if self._reader is not None:
            self._reader.close()
        self._transfer.close()

    def _begin(self, planned: Planned, work: Work) -> _Decoding:
        count = len(planned.ids)
        memory = torch.from_numpy(self._ring.lend())[: self._layout.size(count)]
        parts = self._layout.split(memory, count)
        pending, fields = self._decoder.submit(work, parts.pixels.numpy()), None
        if self._reader is not None:
            fields = self._reader.submit(work, count, _array(parts.masks))
            pending.add(fields)
        return _Decoding(planned, memory, parts, pending, fields)

    def _deliver(self, batch: _Decoding) -> Arrived:
        self._mend(batch)
        self._send(batch)
        self._begun.popleft()
        arrived: Arrived = self._transfer.receive(batch.sent)
        for ahead in self._begun:  # those that are ready are copied while this batch is used
            if not ahead.pending.wait(0) or ahead.pending.failures():
                break
            if ahead.sent is None and not self._transfer.ready():
                break  # the device is behind; a later call begins this copy
            self._send(ahead)
        return arrived._replace(fields=batch.fields)

    def _mend(self, batch: _Decoding) -> None:
        """Replace bad samples if there is a replacer; else raise the first one's error."""
        failures = batch.pending.failures()
        if self._replacer is not None:
            planned, parts = batch.planned, batch.parts
            masks = _array(parts.masks)
            target = Target(
                batch.pending, batch.fields, parts.pixels.numpy(), masks, self._layout.views
            )
            self._replacer.mend(planned.epoch, planned.positions, planned.ids, target)
        elif failures:  # of several the first, which does not depend on timing
            raise failures[min(failures)]

    def _send(self, batch: _Decoding) -> None:
        """Begin to copy a filled batch to the device, if that was not done before."""
        if batch.sent is None:
            planned, parts = batch.planned, batch.parts
            count = len(planned.ids)
            parts.labels.numpy()[:] = batch.pending.labels[:count]
            parts.valid.numpy()[:] = planned.valid
            batch.sent = self._transfer.start(batch.memory, count)


def build_pipeline(
    source: Source, epochs: Epochs, plan: BatchPlan, options: Options
) -> DecodingPipeline:
    """Decoder, buffers and the way to the device; nothing is read or allocated yet.

    Raises:
        OptionError: There is no memory for the batches, or the quarantine cannot be written.
        ThreadError: The system allows no thread, or no further process.
    """
    most = plan.largest
    check_memory(options, most)
    layout = Layout(options.crop.shape, options.views, options.mask is not None)
    threads, ahead = options.decoding_threads, options.prefetch + 1
    replace, quarantine = options.on_error, None
    if replace is not None:  # before anything starts: it may be refused
        place = replace.quarantine
        quarantine = Quarantine(place, rank=plan.rank, world_size=plan.world_size)
    reader = None
    if options.fields or options.mask is not None:
        reader = FieldReader(
            source,
            options.crop,
            seed=options.seed,
            names=options.fields,
            mask=options.mask,
            threads=threads,
            max_pixels=options.max_pixels,
        )
    decoder: Decoder = BatchDecoder(
        source,
        options.crop,
        seed=options.seed,
        threads=threads,
        ahead=ahead,
        keep_going=replace is not None,
        max_pixels=options.max_pixels,
    )
    if options.transform is not None:
        decoder = TransformDecoder(
            decoder,
            source,
            options.transform,
            room=(ahead, options.views * most, *options.crop.shape, 3),
            seed=options.seed,
            threads=threads,
            workers=options.workers,
            keep_going=replace is not None,
        )
    replacer = None
    if replace is not None and quarantine is not None:
        replacer = Replacer(source, epochs, decoder, reader, replace.budget, quarantine)
    finish = None
    if options.statistics is not None:
        finish = Normalize(options.statistics, dtype=options.dtype, device=options.target)
    streams = _streams_to(options.target)
    transfer = (
        HostTransfer(layout, finish)
        if streams is None
        else Transfer(streams, layout, most=most, slots=options.prefetch + 1, finish=finish)
    )
    ring = Ring(layout.size(most), spare=options.prefetch + 2, pinned=transfer.pinned)
    return DecodingPipeline(
        layout,
        ring,
        decoder,
        transfer,
        reader,
        replacer,
        prefetch=options.prefetch,
        where=str(source.path),
    )


def check_memory(options: Options, most: int) -> None:
    """Refuse batches for which there is no memory, before the system ends the process for them.

    Args:
        options: The loader's.
        most: Samples in the largest batch.

    Raises:
        OptionError: There is not enough.
    """
    layout = Layout(options.crop.shape, options.views, options.mask is not None)
    height, width = layout.shape
    values = 3 * height * width * layout.views * most
    floats = options.statistics is not None and options.target.type == "cpu"
    # normalised images are in host memory too, and pixels in memory that processes share
    size = layout.size(most) + values * (floats * options.dtype.itemsize + (options.workers > 0))
    batches = options.prefetch + 2
    there = resources.available_memory()
    if there is not None and size * batches > there:
        raise OptionError(
            f"{batches} batches of {most} samples take {size * batches:,} bytes, {there:,} are "
            "free; choose a smaller batch_size, crop or prefetch"
        )


def _streams_to(device: torch.device) -> Streams | None:
    """The way to a device; None for host memory."""
    return CudaStreams(device) if device.type == "cuda" else None


def _array(tensor: torch.Tensor | None) -> npt.NDArray[np.uint8] | None:
    return None if tensor is None else np.asarray(tensor.numpy(), np.uint8)
