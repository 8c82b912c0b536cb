"""Bad samples replaced by good ones: full batches, equal ranks, and everything written down."""

import contextlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastdata.batch.decoder import Decoder, Failures, PendingBatch, Pixels, Work
from fastdata.batch.fields import FieldReader, Fields
from fastdata.batch.source import Ids, Source
from fastdata.batch.targets import Mask
from fastdata.errors import BudgetError, DecodeError, DestinationError, OptionError, SampleError
from fastdata.plan import rng
from fastdata.plan.epochs import Epochs, augmentation_keys
from fastdata.system.files import open_own, write_all

IN_A_ROW = 100
"""Bad samples in a row that end the run: the data set is damaged, not a sample."""
PROBATION = 10_000
"""The budget is a share of at least so many samples: the first bad one must not exceed it."""
QUARANTINE = "quarantine.jsonl"
"""File in the working directory for the list of replaced samples, unless the user names one."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_COPY = 1 << 40  # substitutes are copies of their own, unlike any that the epoch itself holds


@dataclass(frozen=True)
class Target:
    """A batch to mend.

    Attributes:
        pending: Where samples failed; its labels change.
        fields: Its fields, or None.
        pixels: (V * N, h, w, 3) uint8.
        masks: (V * N, h, w) uint8, or None.
        views: Views V of each sample.
    """

    pending: PendingBatch
    fields: Fields | None
    pixels: Pixels
    masks: Mask | None
    views: int


class Quarantine:
    """A line of JSON for each replaced sample.

    Attributes:
        path: The file; of several ranks each has its own, for example ``quarantine.rank3.jsonl``.
        entries: All that was added by this rank.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, rank: int, world_size: int) -> None:
        """Check that the file can be written; it is created with the first line.

        Args:
            path: The file; None for ``quarantine.jsonl`` in the working directory. If that is
                read-only, there is a warning, and the list is in memory.
            rank: This rank.
            world_size: Number of ranks.

        Raises:
            OptionError: The file that the user named cannot be written.
        """
        self.entries: list[Mapping[str, object]] = []
        named = Path(QUARANTINE if path is None else path).absolute()
        # even appending is not safe between machines that share a folder
        self.path = named.with_stem(f"{named.stem}.rank{rank}") if world_size > 1 else named
        self._writing = True
        try:
            self._try()
        except (OSError, DestinationError) as error:
            if path is not None:
                raise OptionError(
                    f"quarantine: {self.path} cannot be written ({_reason(error)}); name another "
                    "file with fd.Replace(quarantine=...)"
                ) from error
            self._give_up(error)

    def __str__(self) -> str:
        """Where the list is."""
        return str(self.path) if self._writing else "loader.quarantined"

    def add(self, entry: Mapping[str, object]) -> None:
        """Add a sample; to memory alone once the file cannot be written."""
        self.entries.append(entry)
        if not self._writing:
            return
        try:
            fd = open_own(self.path, _APPEND)
            try:
                write_all(fd, (json.dumps(entry) + "\n").encode("ascii"))
            finally:
                os.close(fd)
        except (OSError, DestinationError) as error:
            self._give_up(error)

    def _try(self) -> None:
        """Open the file, and leave the folder as it was."""
        there = self.path.exists()
        os.close(open_own(self.path, _APPEND))
        if not there:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _give_up(self, error: OSError | DestinationError) -> None:
        self._writing = False
        warnings.warn(
            f"{self.path} cannot be written ({_reason(error)}): replaced samples are listed in "
            "loader.quarantined alone; fd.Replace(quarantine=...) names another file",
            RuntimeWarning,
            stacklevel=6,
        )


def _reason(error: OSError | DestinationError) -> str:
    return str((isinstance(error, OSError) and error.strerror) or error)


class Replacer:
    """Puts substitutes in the place of samples that cannot be read or decoded.

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
        decoder: Decoder,
        reader: FieldReader | None,
        budget: float,
        quarantine: Quarantine,
    ) -> None:
        """Nothing is written before the first bad sample.

        Args:
            source: The data set.
            epochs: What substitutes are drawn from.
            decoder: Decodes them.
            reader: Reads their fields, where these are wanted.
            budget: Maximum fraction of samples to replace.
            quarantine: Where each is listed.
        """
        self.replaced = 0
        self.quarantine = quarantine
        self._source = source
        self._epochs = epochs
        self._decoder = decoder
        self._reader = reader
        self._budget = budget
        self._seen = 0
        self._in_a_row = 0

    def mend(self, epoch: int, positions: Ids, ids: Ids, target: Target) -> None:
        """Replace the failed samples of a batch; ``ids`` and all of ``target`` change.

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
        for place, error in sorted(target.pending.failures().items()):
            if not isinstance(error, SampleError | DecodeError):
                raise error
            # one bad view is enough: all views of a place are the same sample
            bad.setdefault(place % len(ids), error)
        self._seen += len(ids)
        # in the order of the epoch, so that runs of bad samples are counted as they lie there
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
                # a substitute may be bad too; the attempt is part of its key, so another follows
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
                "run fastdata verify to see the damage"
            ) from error

    def _substitute(self, epoch: int, position: int, attempt: int) -> int:
        key = rng.key("replace", self._epochs.fingerprint, self._epochs.seed, epoch, position)
        word = rng.bits(key, np.array([attempt], np.int64)) % np.uint64(len(self._epochs))
        return int(self._epochs.draw(word.astype(np.int64), epoch).ids[0])

    def _fill(
        self, epoch: int, positions: Ids, ids: Ids, place: int, target: Target
    ) -> BaseException | None:
        """Decode a substitute into all views of its place; returns the error, if there is one."""
        for view in range(target.views):
            at = place + view * len(ids)
            copy = np.array([(_COPY + int(positions[place])) * target.views + view], np.int64)
            one = ids[place : place + 1]
            work = Work(epoch, one, augmentation_keys(one, copy))
            single = self._decoder.submit(work, target.pixels[at : at + 1])
            fields = None
            if self._reader is not None:
                masks = None if target.masks is None else target.masks[at : at + 1]
                fields = self._reader.submit(work, 1, masks)
                single.add(fields)
            while not single.wait(1.0):  # wakes at the end; a second is for Ctrl-C
                pass
            if failures := single.failures():
                error = failures[min(failures)]
                if not isinstance(error, SampleError | DecodeError):
                    raise error
                return error
            target.pending.labels[at] = single.labels[0]
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
