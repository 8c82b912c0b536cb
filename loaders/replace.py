"""Bad samples replaced by good ones: full batches, equal ranks, and everything written down."""

from dataclasses import dataclass

import numpy as np

from fastdata.batch.fields import FieldReader, Fields
from fastdata.batch.fill import Filling, Fills, Pixels, Work
from fastdata.batch.native import Failures
from fastdata.batch.source import Ids, Source
from fastdata.batch.targets import Mask
from fastdata.errors import BudgetError, DecodeError, SampleError
from fastdata.loaders.quarantine import Quarantine
from fastdata.plan import rng
from fastdata.plan.epochs import Epochs, augmentation_keys

IN_A_ROW = 100
"""Bad samples one after the other that end the run: the data set is damaged, not a sample."""
PROBATION = 10_000
"""Samples that a share is taken of at least: the first bad one of a run is not one too many."""

_COPY = 1 << 40  # substitutes are copies of their own, unlike any that the epoch itself holds


@dataclass(frozen=True)
class Target:
    """A batch to mend.

    Attributes:
        fill: Where samples failed; its labels change.
        fields: What was read beside, or None.
        pixels: (V * N, h, w, 3) uint8.
        masks: (V * N, h, w) uint8, or None.
        views: Views V of each sample.
    """

    fill: Filling
    fields: Fields | None
    pixels: Pixels
    masks: Mask | None
    views: int


class Replacer:
    """Puts substitutes in the place of samples that cannot be had.

    Which substitute comes is a function of (data set, seed, epoch, position), so every run and
    every rank agrees on it.

    Attributes:
        replaced: Samples replaced so far.
        quarantine: Where they are listed.
    """

    def __init__(
        self,
        source: Source,
        epochs: Epochs,
        filler: Fills,
        reader: FieldReader | None,
        budget: float,
        quarantine: Quarantine,
    ) -> None:
        """Nothing is written before the first bad sample.

        Args:
            source: The data set.
            epochs: What substitutes are drawn from.
            filler: Decodes them.
            reader: Reads their fields, where these are wanted.
            budget: Share of samples that may be replaced.
            quarantine: Where each is listed.
        """
        self.replaced = 0
        self.quarantine = quarantine
        self._source = source
        self._epochs = epochs
        self._filler = filler
        self._reader = reader
        self._budget = budget
        self._seen = 0
        self._in_a_row = 0

    def mend(self, epoch: int, positions: Ids, ids: Ids, target: Target) -> None:
        """Replace what failed of a batch; ``ids`` and all of ``target`` change.

        Args:
            epoch: Its epoch.
            positions: (N,) of its samples in the epoch.
            ids: (N,) its samples.
            target: The batch.

        Raises:
            BudgetError: Too many are bad.
            FastdataError: What failed is not one sample but the data set, or the machine.
        """
        bad: Failures = {}
        for place, error in sorted(target.fill.failures().items()):
            if not isinstance(error, SampleError | DecodeError):
                raise error
            bad.setdefault(place % len(ids), error)
        self._seen += len(ids)
        for place, position in enumerate(positions.tolist()):
            failure = bad.get(place)
            if failure is None:
                self._in_a_row = 0
            attempt = 0
            while failure is not None:
                self._count(failure)
                number = self._substitute(epoch, position, attempt)
                self._write(epoch, position, int(ids[place]), number, failure)
                ids[place] = number
                failure = self._fill(epoch, positions, ids, place, target)
                attempt += 1

    def _count(self, error: BaseException) -> None:
        self.replaced += 1
        self._in_a_row += 1
        most = self._budget * max(self._seen, PROBATION)
        if self.replaced > most or self._in_a_row >= IN_A_ROW:
            raise BudgetError(
                f"{self._source.path}: {self.replaced} bad samples among {self._seen}, "
                f"{self._in_a_row} in a row; {self.quarantine} lists them; "
                "fastdata verify shows what is damaged"
            ) from error

    def _substitute(self, epoch: int, position: int, attempt: int) -> int:
        key = rng.key("replace", self._epochs.fingerprint, self._epochs.seed, epoch, position)
        word = rng.bits(key, np.array([attempt], np.int64)) % np.uint64(len(self._epochs))
        return int(self._epochs.draw(word.astype(np.int64), epoch).ids[0])

    def _fill(
        self, epoch: int, positions: Ids, ids: Ids, place: int, target: Target
    ) -> BaseException | None:
        """Decode a substitute into all views of its place; what went wrong, if anything."""
        for view in range(target.views):
            at = place + view * len(ids)
            copy = np.array([(_COPY + int(positions[place])) * target.views + view], np.int64)
            one = ids[place : place + 1]
            work = Work(epoch, one, augmentation_keys(one, copy))
            single = self._filler.submit(work, target.pixels[at : at + 1])
            fields = None
            if self._reader is not None:
                masks = None if target.masks is None else target.masks[at : at + 1]
                fields = self._reader.submit(work, 1, masks)
                single.add(fields)
            while not single.wait(1.0):
                pass
            if failures := single.failures():
                error = failures[min(failures)]
                if not isinstance(error, SampleError | DecodeError):
                    raise error
                return error
            target.fill.labels[at] = single.labels[0]
            if target.fields is not None and fields is not None:
                target.fields.replace(at, target.views, fields)
        return None

    def _write(
        self, epoch: int, position: int, bad: int, number: int, error: BaseException
    ) -> None:
        old, new = self._source.keys(np.array([bad, number], np.int64))
        self.quarantine.add(
            {
                "epoch": epoch,
                "position": position,
                "key": old,
                "error": str(error),
                "replaced_by": new,
            }
        )
