"""Files of the same bytes are packed once."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fastdata.converters.skipped import Skipped
from fastdata.converters.sources.listing import Listing, Unreadable
from fastdata.system.threads import Threads

_STEP = 1024  # files whose hashes are awaited together


def without_duplicates(listing: Listing, workers: int) -> Listing:
    """Leave out every file whose bytes are those of a file before it; fields do not count.

    Only files of equal sizes are read. What cannot be read stays, for the pack to report.

    Args:
        listing: The source.
        workers: Number of reading threads.

    Raises:
        SourceError: Files cannot be read for a reason that lies in this process.
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
    """Hash of each file that shares its size, in order; empty where it cannot be read."""
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
