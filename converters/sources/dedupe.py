"""Leaves out files whose bytes equal another file's."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fastdata.converters.skipped import Skipped
from fastdata.converters.sources.listing import Listing, Unreadable
from fastdata.system.threads import Threads

_STEP = 1024  # files that are hashed at a time


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
