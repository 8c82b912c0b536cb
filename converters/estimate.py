"""What a pack would do, from a sample of the files: ``fastdata pack --dry-run``."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fastdata.converters.images.coding import Coding
from fastdata.converters.pack import thread_count
from fastdata.converters.sources.listing import Listing
from fastdata.converters.sources.open import AnySource, Selection, list_source
from fastdata.converters.sources.subset import limited
from fastdata.converters.stages import Loaded, read_all
from fastdata.converters.tar.shards import BLOCK
from fastdata.dataset.manifest import Skipped, count_reasons

_FILES = 200


@dataclass(frozen=True)
class PackPlan:
    """What a pack would do.

    Attributes:
        samples: Number of samples; files that are no image count in proportion.
        classes: Files of each class by its name.
        bytes: Approximate size of the data set.
        seconds: Approximate time to read and code all files; writing overlaps with it.
        skipped_counts: How many files would be left out unread, by reason.
    """

    samples: int
    classes: Mapping[str, int]
    bytes: int
    seconds: float
    skipped_counts: Mapping[str, int]


def estimate_pack(
    src: AnySource, selection: Selection, coding: Coding, workers: int | None = None
) -> PackPlan:
    """Estimate what :func:`fastdata.converters.pack.pack` would do; nothing is written.

    Args:
        src: As there.
        selection: What to pack.
        coding: How to store images.
        workers: Number of threads; as many as there are cores, if None.

    Raises:
        OptionError: An argument is out of range.
        SourceError: The source is missing or holds no image.
    """
    threads = thread_count(workers)
    return estimate(list_source(src, selection, threads), coding.possible(), threads)


def estimate(listing: Listing, coding: Coding, workers: int) -> PackPlan:
    """Read and code at most 200 files, the same ones each time, and scale by bytes.

    Raises:
        SourceError: This process has run out of file descriptors or memory.
    """
    some = limited(listing, _FILES)
    started = time.perf_counter()
    results = [found for _, found in read_all(some, range(len(some)), workers, coding)]
    seconds = time.perf_counter() - started
    loaded = [found for found in results if not isinstance(found, Skipped)]
    # Headers grow with the number of files, images with their bytes.
    scale = len(listing) / len(some)
    bytes_scale = int(listing.sizes.sum()) / max(1, int(some.sizes.sum()))
    headers = sum(map(_header_bytes, loaded))
    stored = sum(map(_stored_bytes, loaded))
    counts = Counter(listing.labels.tolist())
    return PackPlan(
        samples=round(len(loaded) * scale),
        classes={name: counts[label] for label, name in enumerate(listing.classes)},
        bytes=round(stored * bytes_scale + headers * scale),
        seconds=seconds * bytes_scale,
        skipped_counts=count_reasons(listing.skipped),
    )


def _stored_bytes(loaded: Loaded) -> int:
    return len(loaded.coded.image) + sum(map(len, loaded.fields.values()))


def _header_bytes(loaded: Loaded) -> int:
    """Headers of the members and half a block after each; the label is two blocks."""
    return (1 + len(loaded.fields)) * (BLOCK + BLOCK // 2) + 2 * BLOCK
