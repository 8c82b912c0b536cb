"""What an epoch draws: which sample comes at which position, and as which copy of it.

Everything is a function of (choice, seed, epoch, position), so that ranks, threads and resumed
processes agree without talking to each other. Nothing but what a user chose takes memory: a subset
its ids, weights a table of their size.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fastdata.errors import OptionError
from fastdata.plan import order, rng, window

I64 = npt.NDArray[np.int64]
Shuffle = bool | Literal["window"]

_TOTAL_BITS = 53  # of integer weights: a power of two, so that a random word's low bits are fair


class Draws(NamedTuple):
    """What comes at N positions.

    Attributes:
        ids: (N,) int64 samples.
        copies: (N,) int64; 0 where a sample comes for the first time in the epoch. Copies of one
            sample have different numbers, and are augmented differently.
    """

    ids: I64
    copies: I64


def augmentation_keys(ids: I64, copies: I64) -> I64:
    """(N,) counters for the random numbers of crops: the ids themselves for first copies."""
    return (ids.view(np.uint64) ^ rng.mix(copies.view(np.uint64))).view(np.int64)


@dataclass(frozen=True, eq=False)
class Stratum:
    """Samples that are drawn from alike.

    Attributes:
        ids: (m,) ids, or all of a range.
        draws: How often an epoch draws from them: m is each once; more or fewer are whole rounds
            and a random rest.
    """

    ids: I64 | range
    draws: int


@dataclass(frozen=True)
class Epochs:
    """The epochs over a data set.

    Attributes:
        fingerprint: Of the data set.
        strata: What is drawn from; their draws add up to an epoch.
        shuffle: True for the full permutation, ``"window"`` for one that reads nearly in the
            order of the data set, False for that order itself.
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
        """Check what belongs together."""
        if self.repeats < 1:
            raise OptionError(f"repeats must be 1 or more, found {self.repeats}")
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
        """Digest of what is drawn from, which a resumed run must agree on."""
        digest = hashlib.sha256()
        for stratum in self.strata:
            ids = stratum.ids
            known = repr(ids).encode() if isinstance(ids, range) else ids.astype("<i8").tobytes()
            digest.update(b"%d %d " % (stratum.draws, len(known)) + known)
        if self.weights is not None:
            digest.update(self._shares.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def draw(self, positions: I64, epoch: int) -> Draws:
        """What comes at N positions, each in [0, len(self))."""
        places, copies = np.divmod(positions, self.repeats)
        if self.weights is not None:
            return self._weighted(places, positions, epoch)
        total = len(self) // self.repeats
        key = order.epoch_key(self.fingerprint, self.seed, epoch)
        if self.shuffle == "window":
            places = window.permutation(places, total, key)
        elif self.shuffle:
            places = order.permutation(places, total, key)
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
            places[last] = order.permutation(places[last], size, key)
        return _take(stratum.ids, places), rounds

    def _weighted(self, places: I64, positions: I64, epoch: int) -> Draws:
        key = rng.key("weights", self.fingerprint, self.seed, epoch)
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
        parts[parts.argmax()] += 2**_TOTAL_BITS - int(parts.sum())
        return np.cumsum(parts)


def _take(ids: I64 | range, places: I64) -> I64:
    return places + ids.start if isinstance(ids, range) else ids[places]
