"""What a pack would come to, from a sample of its files."""

import time
from typing import NamedTuple

from fastdata.converters.images.coding import Coding
from fastdata.converters.read import Loaded, read_all
from fastdata.converters.sources.listing import Listing, Skipped
from fastdata.converters.sources.split import limit
from fastdata.converters.tar.format import BLOCK

_FILES = 200


class Estimate(NamedTuple):
    """What a pack would come to.

    Attributes:
        samples: Number of samples; files that are no image count in proportion.
        bytes: Of its shards.
        seconds: To read and code all files; writing goes on meanwhile.
        skipped: What was left out of the sample, on top of the listing's own.
    """

    samples: int
    bytes: int
    seconds: float
    skipped: tuple[Skipped, ...]


def estimate(listing: Listing, coding: Coding, workers: int) -> Estimate:
    """Read and code at most 200 files, the same ones each time, and scale by bytes.

    Raises:
        SourceError: Files cannot be read for a reason that lies in this process.
    """
    some = limit(listing, _FILES)
    started = time.perf_counter()
    results = [found for _, found in read_all(some, range(len(some)), workers, coding)]
    seconds = time.perf_counter() - started
    loaded = [found for found in results if isinstance(found, Loaded)]
    scale = len(listing) / len(some)
    bytes_scale = int(listing.sizes.sum()) / max(1, int(some.sizes.sum()))
    headers = sum(_headers(found) for found in loaded)
    stored = sum(_stored(found) for found in loaded)
    return Estimate(
        samples=round(len(loaded) * scale),
        bytes=round(stored * bytes_scale + headers * scale),
        seconds=seconds * bytes_scale,
        skipped=tuple(found for found in results if isinstance(found, Skipped)),
    )


def _stored(loaded: Loaded) -> int:
    return len(loaded.image) + sum(map(len, loaded.fields.values()))


def _headers(loaded: Loaded) -> int:
    """Headers of the members and half a block behind each; the label is two blocks."""
    return (1 + len(loaded.fields)) * (BLOCK + BLOCK // 2) + 2 * BLOCK
