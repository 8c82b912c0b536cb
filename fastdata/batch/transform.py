"""A stage after decoding: the user's own function over each image."""

from queue import SimpleQueue

import numpy as np

from fastdata.batch.decoder import ALL, Decoder, Failures, PendingBatch, Pixels, Work
from fastdata.batch.source import Source
from fastdata.batch.workers import Transform, Workers
from fastdata.errors import TransformError
from fastdata.plan import rng
from fastdata.system.threads import Flag, Task, Threads

_LOOK = 0.2  # seconds between looks at a decoding batch, whose end wakes the waiter by itself


class TransformDecoder:
    """A :class:`Decoder` that applies a function to each image of another one.

    The function gets a seed of its own for each (seed, epoch, sample, copy), so that its random
    numbers, like crops, do not depend on who loads the sample or when.
    """

    def __init__(
        self,
        decoder: Decoder,
        source: Source,
        transform: Transform,
        *,
        room: tuple[int, int, int, int, int],
        seed: int,
        threads: int,
        workers: int,
        keep_going: bool,
    ) -> None:
        """Start the worker processes, if any.

        Args:
            decoder: Decodes; it is closed with this one.
            source: Where samples are read.
            transform: From (h, w, 3) uint8 and a seed to the same shape and type.
            room: Most batches under way at a time, then the shape of the largest: images, height,
                width, 3.
            seed: Keys the function's seeds.
            threads: Threads, without processes.
            workers: Processes; 0 for threads.
            keep_going: Continue with the others after a sample that could not be decoded.

        Raises:
            OptionError: The function cannot be sent to a process.
        """
        self._decoder = decoder
        self._source = source
        self._seed = seed
        self._keep_going = keep_going
        self._workers = Workers(transform, threads=threads, processes=workers, room=room)
        self._slots: SimpleQueue[int] = SimpleQueue()
        for slot in range(room[0]):
            self._slots.put(slot)
        self._batches = Threads(room[0], "fastdata-stage")  # as many as slots

    def submit(self, work: Work, out: Pixels) -> PendingBatch:
        """Begin to fill a batch; see :meth:`Decoder.submit`."""
        batch = PendingBatch(self._source.rows(work.ids)["label"].astype(np.int64))
        stage = _Stage()
        stage.task = self._batches.submit(self._run, stage, work, out)
        batch.add(stage)
        return batch

    def close(self) -> None:
        """End threads and processes."""
        self._workers.close()
        self._batches.shutdown(wait=True, cancel_futures=True)
        self._decoder.close()

    def _run(self, stage: "_Stage", work: Work, out: Pixels) -> Failures:
        arena = self._workers.arena
        if arena is None:
            return self._fill(stage, work, out)
        # processes see the arena alone, so images are decoded there and copied out at the end
        slot = self._slots.get()
        try:
            pixels = arena[slot, : len(out)]
            failures = self._fill(stage, work, pixels)
            out[:] = pixels
        finally:
            self._slots.put(slot)
        return failures

    def _fill(self, stage: "_Stage", work: Work, pixels: Pixels) -> Failures:
        """Decode, and apply the function; returns once nothing touches the pixels any more."""
        decoding = self._decoder.submit(work, pixels)
        while not decoding.wait(_LOOK):
            if stage.cancelled.is_set():
                decoding.cancel()
        failures = decoding.failures()
        if stage.cancelled.is_set() or (failures and not self._keep_going):
            return failures
        rows = [row for row in range(len(pixels)) if row not in failures]
        words = rng.bits(rng.key("transform", self._seed, work.epoch), work.keys[rows])
        seeds = (words >> np.uint64(1)).tolist()  # torch takes 63 bits
        for row, text in self._workers.apply(pixels, rows, seeds).items():
            (key,) = self._source.keys(work.ids[row : row + 1])
            failures[row] = TransformError(
                f"{self._source.path}: sample {key!r}: transform failed\n{text}"
            )
        return failures


class _Stage:
    """A batch under way; a :class:`fastdata.batch.decoder.Part` of it."""

    def __init__(self) -> None:
        self.cancelled = Flag()
        self.task: Task[Failures]

    def cancel(self) -> None:
        self.cancelled.set()
        self.task.cancel()

    def wait(self, seconds: float) -> bool:
        return self.task.wait(seconds)

    def failures(self) -> Failures:
        error = self.task.exception()
        return self.task.result() if error is None else {ALL: error}
