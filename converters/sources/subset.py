"""Some samples of a source: the parts of a split, a random few, or all but duplicates."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fastdata.converters.sources.listing import Listing, Unreadable
from fastdata.dataset.manifest import Skipped
from fastdata.errors import OptionError
from fastdata.plan import rng
from fastdata.system.threads import Threads

_STEP = 1024  # files that are hashed at a time
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Split:
    """Named shares of the samples.

    A sample's part depends only on its key, so it does not change when other samples do.

    Attributes:
        names: Names of the parts.
        shares: Share of each part; they add up to 1.
    """

    names: tuple[str, ...]
    shares: tuple[Fraction, ...]

    def split_of(self, keys: Sequence[bytes]) -> list[str]:
        """Name of the part that each key belongs to."""
        return [self.names[part] for part in self._parts(keys).tolist()]

    def parts(self, listing: Listing) -> dict[str, Listing]:
        """The samples of each part, with their keys and all classes; a part may be empty."""
        parts = self._parts([listing.key(i) for i in range(len(listing))])
        return {
            name: listing.take(np.flatnonzero(parts == number))
            for number, name in enumerate(self.names)
        }

    def _parts(self, keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
        # Python's own hash differs between processes.
        hashes = (hashlib.blake2b(key, digest_size=8).digest() for key in keys)
        counters = np.frombuffer(b"".join(hashes), "<u8").astype(np.uint64)
        words = rng.bits(rng.key("split"), counters)
        # Exact fractions: sums of floats could move a bound, and with it samples.
        ends = np.cumsum(np.array(self.shares, object))[:-1]
        bounds = np.array([int(end * 2**64) for end in ends], np.uint64)
        return np.searchsorted(bounds, words, side="right")


def parse_split(text: str) -> Split:
    """Read shares such as ``"train=0.9,val=0.1"``; ``"a=2/3,b=1/3"`` works too.

    Raises:
        OptionError: A name or a share is wrong, or they do not add up to 1.
    """
    names, shares = [], []
    for part in text.split(","):
        name, _, share = (piece.strip() for piece in part.partition("="))
        try:
            value = Fraction(share)
        except (ValueError, ZeroDivisionError):
            value = Fraction(0)
        if not _NAME.fullmatch(name) or name in names or not 0 < value < 1:
            raise OptionError(
                "split must be like train=0.9,val=0.1: different names of letters, digits, _, . "
                f"and -, and shares between 0 and 1; found {part!r} in {text!r}"
            )
        names.append(name)
        shares.append(value)
    if sum(shares) != 1:
        raise OptionError(f"the shares of {text!r} must add up to 1, found {float(sum(shares))}")
    return Split(tuple(names), tuple(shares))


def limited(listing: Listing, samples: int) -> Listing:
    """At most so many randomly chosen files, always the same ones, in their order.

    Raises:
        OptionError: ``samples`` is less than 1.
    """
    if samples < 1:
        raise OptionError(f"limit must be 1 or more, found {samples}")
    n = len(listing)
    drawn = np.arange(min(n, samples), dtype=np.int64)
    if samples < n:
        drawn = np.sort(rng.permutation(drawn, n, rng.key("limit")))
    return listing.take(drawn)


def without_duplicates(listing: Listing, workers: int) -> Listing:
    """Leave out every file whose bytes equal those of an earlier one; fields do not count.

    Only files that share their size are read. One that cannot be read stays: the pack reports it.

    Args:
        listing: The source.
        workers: Number of reading threads.

    Raises:
        SourceError: This process has run out of file descriptors or memory.
    """
    first: dict[bytes, int] = {}
    again: dict[int, int] = {}  # the first file of the same bytes, by place
    for place, digest in _digests(listing, workers):
        if digest and first.setdefault(digest, place) != place:
            again[place] = first[digest]
    kept = np.setdiff1d(np.arange(len(listing)), np.fromiter(again, np.int64, len(again)))
    left_out = tuple(_entry(listing, place, original) for place, original in again.items())
    return replace(listing.take(kept), skipped=listing.skipped + left_out)


def _digests(listing: Listing, workers: int) -> Iterator[tuple[int, bytes]]:
    """Hash of each file that shares its size, in order; empty if it cannot be read."""
    _, groups, counts = np.unique(listing.sizes, return_inverse=True, return_counts=True)
    places = np.flatnonzero(counts[groups] > 1).tolist()
    with Threads(workers, "fastdata-hash") as pool:
        for start in range(0, len(places), _STEP):
            some = places[start : start + _STEP]
            yield from zip(some, pool.map(lambda i: _digest(listing, i), some), strict=True)


def _digest(listing: Listing, place: int) -> bytes:
    data = listing.read(place)
    return b"" if isinstance(data, Unreadable) else hashlib.blake2b(data, digest_size=16).digest()


def _entry(listing: Listing, place: int, original: int) -> Skipped:
    same = listing.labels[place] == listing.labels[original]
    what = "duplicate" if same else "duplicate under another label"
    name, other = (os.fsdecode(listing.name(i)) for i in (place, original))
    return Skipped(name, f"{what}: {other}")
