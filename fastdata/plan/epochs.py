"""Which sample comes at each position of an epoch, and which positions make up a rank's batches.

Everything is a function of (choice, seed, epoch, position), so that ranks, threads and resumed
processes agree without talking to each other. Only the user's choice takes memory: a subset its
ids, weights a table of their size.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.errors import OptionError
from fastdata.plan import rng

I64 = npt.NDArray[np.int64]
Shuffle = bool | Literal["window"]

_TOTAL_BITS = 53  # of integer weights: a power of two, so that a random word's low bits are fair


class Draws(NamedTuple):
    """The samples at N positions.

    Attributes:
        ids: (N,) int64 samples.
        copies: (N,) int64; 0 the first time that a sample comes in the epoch. Copies of one sample
            have different numbers, and are augmented differently.
    """

    ids: I64
    copies: I64


def augmentation_keys(ids: I64, copies: I64) -> I64:
    """(N,) counters for the random numbers of crops: the ids themselves for first copies."""
    return (ids.view(np.uint64) ^ rng.mix(copies.view(np.uint64))).view(np.int64)


@dataclass(frozen=True, eq=False)
class Stratum:
    """Samples with an equal chance to be drawn.

    Attributes:
        ids: (m,) ids, or all of a range.
        draws: How often an epoch draws from them: m takes each once; other numbers are whole rounds
            and a random rest.
    """

    ids: I64 | range
    draws: int


@dataclass(frozen=True)
class Epochs:
    """The epochs over a data set.

    Attributes:
        fingerprint: Of the data set.
        strata: Where samples are drawn from; their draws add up to an epoch.
        shuffle: True for the full permutation, ``"window"`` for one that reads nearly in the
            order of the data set, False for the data set's own order.
        seed: Keys the order.
        repeats: How often each drawn sample comes in a row, each time augmented differently.
        weights: (m,) of the one stratum's samples, drawn with replacement; None draws each once.
    """

    fingerprint: str
    strata: tuple[Stratum, ...]
    shuffle: Shuffle = True
    seed: int = 0
    repeats: int = 1
    weights: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Check that the fields fit each other."""
        if self.shuffle not in (True, False, "window"):
            raise OptionError(f"shuffle must be True, False or 'window', found {self.shuffle!r}")
        if any(stratum.draws < 1 for stratum in self.strata):
            raise OptionError("an epoch must draw at least one sample from each data set")
        if self.weights is not None and len(self.strata) > 1:
            raise OptionError("weights and a mix of data sets exclude each other")
        if self.weights is not None and self.shuffle is not True:
            raise OptionError("weights draw at random; they need shuffle=True")
        if len(self.strata) > 1 and self.shuffle is not True:
            raise OptionError("a mix of data sets needs shuffle=True")
        if self.weights is not None:
            _ = self._shares  # checked now, not in the first batch

    def __len__(self) -> int:
        """Positions in an epoch."""
        return self.repeats * sum(stratum.draws for stratum in self.strata)

    @cached_property
    def choice(self) -> str:
        """Digest of strata and weights, which a resumed run must agree on."""
        digest = hashlib.sha256()
        for stratum in self.strata:
            ids = stratum.ids
            known = repr(ids).encode() if isinstance(ids, range) else ids.astype("<i8").tobytes()
            digest.update(b"%d %d " % (stratum.draws, len(known)) + known)
        if self.weights is not None:
            digest.update(self._shares.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def draw(self, positions: I64, epoch: int) -> Draws:
        """The samples at N positions, each in [0, len(self))."""
        places, copies = np.divmod(positions, self.repeats)
        if self.weights is not None:
            return self._weighted(places, positions, epoch)
        total = len(self) // self.repeats
        key = rng.epoch_key(self.fingerprint, self.seed, epoch)
        if self.shuffle == "window":
            places = rng.windows(places, total, key)
        elif self.shuffle:
            places = rng.permutation(places, total, key)
        # the permutation runs over all strata at once: each owns a range of its places, so that
        # their shares are exact in the epoch and random in a batch
        ids = np.empty(len(places), np.int64)
        start = 0
        for number, stratum in enumerate(self.strata):
            mine = (places >= start) & (places < start + stratum.draws)
            if mine.any():
                numbers, rounds = self._of_stratum(number, places[mine] - start, epoch)
                ids[mine] = numbers
                copies[mine] += rounds * self.repeats
            start += stratum.draws
        return Draws(ids, copies)

    def _of_stratum(self, number: int, draws: I64, epoch: int) -> tuple[I64, I64]:
        """Ids and rounds of some draws from one stratum."""
        stratum = self.strata[number]
        size = len(stratum.ids)
        rounds, places = np.divmod(draws, size)
        if stratum.draws % size:  # the last round is not whole: who is in it is drawn
            last = rounds == stratum.draws // size
            key = rng.key("round", self.fingerprint, self.seed, epoch, number)
            places[last] = rng.permutation(places[last], size, key)
        return _take(stratum.ids, places), rounds

    def _weighted(self, places: I64, positions: I64, epoch: int) -> Draws:
        key = rng.key("weights", self.fingerprint, self.seed, epoch)
        # repeats of a draw share a place, and so a sample
        words = rng.bits(key, places) & np.uint64(2**_TOTAL_BITS - 1)
        chosen = np.searchsorted(self._shares, words.astype(np.int64), side="right")
        # a sample may come at any positions: these tell its copies apart
        return Draws(_take(self.strata[0].ids, chosen.astype(np.int64)), positions + 1)

    @cached_property
    def _shares(self) -> I64:
        """(m,) int64, running sums of the weights as integers that add up to 2**53.

        Integers, because sums of floating-point numbers differ between machines.
        """
        weights = np.asarray(self.weights, np.float64)
        if weights.shape != (len(self.strata[0].ids),):
            raise OptionError(
                f"weights must be one for each of {len(self.strata[0].ids)} samples, "
                f"found shape {weights.shape}"
            )
        total = math.fsum(weights.tolist())
        if not np.isfinite(weights).all() or (weights < 0).any() or total <= 0:
            raise OptionError("weights must be finite, not negative, and not all zero")
        parts = np.floor(weights / total * 2.0**_TOTAL_BITS).astype(np.int64)
        # what rounding left over goes to the largest, where it changes the least
        parts[parts.argmax()] += 2**_TOTAL_BITS - int(parts.sum())
        return np.cumsum(parts)


@dataclass(frozen=True)
class BatchPlan:
    """The batches of one rank in an epoch.

    Global batch k covers the positions from k * B * W on (B = ``batch_size``, W = ``world_size``),
    and rank r takes every W-th of them:

        positions     0 1 2 3 4 5 6 7 8 9        B = 2, W = 2
        global batch  0 0 0 0 1 1 1 1 2 2
        rank          0 1 0 1 0 1 0 1 0 1

    so that the global order does not depend on the world size, and all ranks have equally many
    batches of equal size. With ``drop_last`` an incomplete global batch is left out. Without it
    each rank gets ceil(rest / W) places of it; places beyond the last sample repeat the first
    samples and are marked invalid. A single rank is never padded. The rest of an interrupted epoch
    is planned in the same way, from its first position, ``start``.

    Attributes:
        samples: Samples in the epoch.
        batch_size: Samples in a batch of one rank.
        drop_last: Leave out the incomplete global batch.
        rank: This rank, from 0.
        world_size: Number of ranks.
        start: First position; earlier ones were handed out already.

    Raises:
        OptionError: A number is out of range, or no batch is left.
    """

    samples: int
    batch_size: int
    drop_last: bool
    rank: int = 0
    world_size: int = 1
    start: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.batch_size < 2**31:
            raise OptionError(f"batch_size must be from 1 to {2**31 - 1}, found {self.batch_size}")
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise OptionError(
                f"rank must lie in [0, world_size), found rank {self.rank} of {self.world_size}"
            )
        if not 0 <= self.start <= self.samples:
            raise OptionError(f"start must lie in [0, {self.samples}], found {self.start}")
        if self.start == 0 and len(self) == 0:
            ranks = f" on each of {self.world_size} ranks" if self.world_size > 1 else ""
            raise OptionError(
                f"{self.samples} samples make no batch of {self.batch_size}{ranks}; "
                "lower batch_size or set drop_last=False"
            )

    @property
    def largest(self) -> int:
        """Samples in the largest batch of a rank."""
        return min(self.batch_size, self.samples)

    @property
    def global_batch(self) -> int:
        """Samples in a global batch."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Batches of this rank, the same on every rank."""
        whole, rest = divmod(self.samples - self.start, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)

    def positions(self, index: int) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Positions of batch ``index`` and which of them are valid, both of shape (N,)."""
        start = self.start + index * self.global_batch
        rest = min(self.samples - start, self.global_batch)
        places = -(-rest // self.world_size)
        positions = start + self.rank + self.world_size * np.arange(places, dtype=np.int64)  # (N,)
        # padding repeats real samples: a batch must have pixels in every place
        return positions % self.samples, positions < self.samples

    def end(self, index: int) -> int:
        """Position after the global batch ``index``."""
        return min(self.start + (index + 1) * self.global_batch, self.samples)


def _take(ids: I64 | range, places: I64) -> I64:
    return places + ids.start if isinstance(ids, range) else ids[places]
