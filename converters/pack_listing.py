"""A listing becomes a packed data set: refused, found whole, continued, or packed from scratch."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fastdata.converters.destination import destination
from fastdata.converters.images.coding import Coding
from fastdata.converters.job import Job, Progress
from fastdata.converters.pace import Limit
from fastdata.converters.sources.listing import Listing, Skipped
from fastdata.converters.sources.records import RecordListing
from fastdata.dataset.manifest import Manifest
from fastdata.errors import DestinationError, SourceError
from fastdata.system import resources
from fastdata.system.files import Lock
from fastdata.system.threads import check_count


@dataclass(frozen=True)
class PackReport:
    """What a pack did.

    Attributes:
        path: The data set.
        kind: ``"tar"`` or ``"lmdb"``.
        samples: Number of samples.
        classes: Number of classes; 0 for a flat folder.
        source_bytes: Bytes of the files that were packed; 0 if ``already_complete``.
        image_bytes: Bytes of their images as they are stored; likewise.
        bytes: Bytes of all files of the data set.
        shards: Number of shards, or of groups within an LMDB file.
        skipped: Name and reason of each file that was left out, sorted; if ``already_complete``,
            only of those that were left out unread.
        skipped_counts: How many files were left out, by reason.
        kept_counts: How many JPEGs could not be coded anew and are as they were, by reason.
        noted: How many images were packed by a rule that is worth knowing, by rule.
        resumed: Samples that were taken over from a pack of the same that was interrupted.
        limited_by: What the time went to: ``"reading"``, ``"coding"`` or ``"writing"``; None if
            ``already_complete``.
        seconds: Time it took.
        already_complete: The data set was there from the same source and options; nothing was
            written.
        parts: What was done for each part of a split, by name; the rest is their sum. Empty
            without a split.
    """

    path: Path
    kind: str
    samples: int
    classes: int
    source_bytes: int
    image_bytes: int
    bytes: int
    shards: int
    skipped: tuple[Skipped, ...]
    skipped_counts: Mapping[str, int]
    kept_counts: Mapping[str, int]
    noted: Mapping[str, int]
    resumed: int
    limited_by: Limit | None
    seconds: float
    already_complete: bool
    parts: Mapping[str, "PackReport"] = field(default_factory=dict)


def pack_listing(
    listing: Listing,
    dst: str | os.PathLike[str],
    coding: Coding,
    *,
    shard_size: int,
    workers: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    overwrite: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> PackReport:
    """Pack what was listed; see :func:`fastdata.converters.pack.pack`.

    Args:
        listing: The source.
        dst: As there, and so the others.
        coding: How images are stored.
        shard_size: Most bytes of a shard.
        workers: Reading threads.
        shuffle: Whether the order is random.
        seed: Of that order.
        overwrite: Replaces a data set that is there.
        strict: Makes any file that would be skipped an error.
        progress: Called after each sample.

    Raises:
        FastdataError: As there.
    """
    started = time.perf_counter()
    options = {
        **coding.options(),
        "seed": seed if shuffle else None,  # without a shuffle it changes nothing
        "shard_size": shard_size,
        "shuffle": shuffle,
    }
    threads = resources.cpu_count() if workers is None else workers
    check_count("workers", threads)
    target = destination(_resolved(Path(dst)))
    _refuse_overlap(listing, target.path)
    if strict and listing.skipped:
        raise SourceError(_strict_message(listing))
    job = Job(listing, target, coding, options, workers=threads, strict=strict, progress=progress)
    with job.guard:
        found = None if overwrite else _complete(job)
        clean = found is not None and target.is_clean()
    manifest = found if found and clean else _pack_locked(job, overwrite=overwrite)
    return PackReport(
        path=Path(dst),
        kind=manifest.kind,
        samples=manifest.samples,
        classes=len(manifest.classes),
        source_bytes=job.tally.source_bytes,
        image_bytes=job.tally.image_bytes,
        bytes=target.bytes(),
        shards=len(manifest.shards),
        skipped=tuple(job.skipped()),
        skipped_counts=manifest.skipped,
        kept_counts=manifest.kept,
        noted=manifest.noted,
        resumed=job.resumed,
        limited_by=job.limited_by,
        seconds=time.perf_counter() - started,
        already_complete=job.limited_by is None,
    )


def _resolved(path: Path) -> Path:
    """A destination's path with links followed, but not one in the place of an LMDB file."""
    if path.name.endswith(".lmdb"):
        return Path(os.path.realpath(path.parent)) / path.name
    return Path(os.path.realpath(path))


def _refuse_overlap(listing: Listing, target: Path) -> None:
    """Refuse a destination within the source: the next pack would read it as a part of that."""
    inputs = listing.inputs if isinstance(listing, RecordListing) else (listing.root,)
    for root in map(Path, map(os.path.realpath, inputs)):
        if target == root or root in target.parents:
            raise DestinationError(f"{target}: lies within the source {root}; choose another place")


def _strict_message(listing: Listing) -> str:
    skipped = listing.skipped
    shown = "; ".join(f"{entry.name}: {entry.reason}" for entry in skipped[:10])
    more = f"; and {len(skipped) - 10} more" if len(skipped) > 10 else ""
    return f"{listing.root}: {len(skipped)} would be skipped, which --strict forbids: {shown}{more}"


def _complete(job: Job) -> Manifest | None:
    """The manifest of what is there already, if it is what this pack would write."""
    manifest = job.target.manifest()
    if manifest is None:
        return None
    if manifest.source != job.listing.fingerprint:
        what = "was packed from another source or choice of files, or the source has changed"
    elif manifest.options != job.options:
        what = f"was packed with {dict(manifest.options)}, not {dict(job.options)}"
    else:
        return manifest
    raise DestinationError(f"{job.target.path}: {what}; use --overwrite to replace it")


def _pack_locked(job: Job, *, overwrite: bool) -> Manifest:
    target = job.target
    with job.guard:
        created = target.create()
    try:
        with _lock(job):
            return _pack_alone(job, overwrite=overwrite)
    except BaseException:
        if created and job.is_here():
            with suppress(OSError):  # whole shards stay, and with them the folder
                target.path.rmdir()
        raise


@contextmanager
def _lock(job: Job) -> Iterator[None]:
    with ExitStack() as stack:
        with job.guard:
            stack.enter_context(Lock(job.target.lock_path, str(job.target.path)))
        try:
            yield
        finally:
            with job.guard:
                stack.close()


def _pack_alone(job: Job, *, overwrite: bool) -> Manifest:
    mark = json.dumps({"options": job.options, "source": job.listing.fingerprint}, sort_keys=True)
    with job.guard:
        # Another process may have ended between the first look and the lock.
        found = None if overwrite else _complete(job)
        if found is not None:
            job.target.finish(found)
            return found
        job.target.check(mark, overwrite=overwrite)
    try:
        with job.guard:
            noted = job.target.prepare(mark, overwrite=overwrite)
        return job.run(noted)
    except BaseException:
        if job.is_here():
            with suppress(OSError):
                job.target.give_up()
        raise
