"""From an image folder to a packed data set: ``fastdata pack SRC DST``."""

import os
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from fastdata import cores
from fastdata.converters.destination import destination
from fastdata.converters.job import Job, Progress
from fastdata.converters.listing import Skipped
from fastdata.converters.scan import scan
from fastdata.converters.transcode import RUN_PIXELS
from fastdata.errors import DestinationError, OptionError, SourceError
from fastdata.files import Lock
from fastdata.manifest import Manifest, Options
from fastdata.probe import core

_MOST_RUN_PIXELS = 65535
_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{f"{mark}{end}": 1000**power for power, mark in enumerate("kmgt", 1) for end in ("", "b")},
    **{f"{mark}ib": 1024**power for power, mark in enumerate("kmgt", 1)},
}


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
        skipped: Name and reason of each file that was left out; empty if ``already_complete``.
        skipped_counts: How many files were left out, by reason.
        kept_counts: How many JPEGs could not be coded anew and are as they were, by reason.
        seconds: Time it took.
        already_complete: The data set was there from the same source and options; nothing was
            written.
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
    seconds: float
    already_complete: bool


def pack(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    shard_size: int | str = "256MB",
    workers: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    keep_bytes: bool = False,
    run_pixels: int = RUN_PIXELS,
    overwrite: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> PackReport:
    """Pack an image folder into tar shards, or into one LMDB file.

    The content depends on source, ``shard_size``, ``shuffle`` and ``seed`` alone. Shards appear
    one by one, each whole; the manifest comes last and makes them a data set.

    Args:
        src: A folder of class folders, or a flat one.
        dst: A name that ends in ``.lmdb`` for one LMDB file; else a folder for shards, new, empty
            or packed before.
        shard_size: Most bytes of a shard, a number or a text such as ``"256MB"`` or ``"1GiB"``.
        workers: Reading threads; as many as there are cores without it.
        shuffle: Whether samples are packed in random order rather than that of ImageFolder.
        seed: Of that order.
        keep_bytes: Whether image bytes are kept as they are. Otherwise JPEGs are coded anew,
            without any change of a pixel, in restart runs of which a crop decodes only those it
            needs. Where the native core is missing, bytes are kept.
        run_pixels: Width of these runs.
        overwrite: Replaces a data set that is there.
        strict: Makes any file that would be skipped an error.
        progress: Called after each sample, on the calling thread.

    Returns:
        What was done.

    Raises:
        OptionError: An argument is out of range.
        SourceError: The source is missing or holds no image, or ``strict`` found a file to skip.
        DestinationError: The destination holds something else, or cannot be written.
        BusyError: Another process packs into it.
        CorruptError: A data set is there but damaged; ``overwrite`` replaces it.
    """
    started = time.perf_counter()
    if not 8 <= run_pixels <= _MOST_RUN_PIXELS:
        raise OptionError(f"run_pixels must be from 8 to {_MOST_RUN_PIXELS}, found {run_pixels}")
    keep = keep_bytes or core() is None
    options = _options(
        shard_size, shuffle=shuffle, seed=seed, run_pixels=None if keep else run_pixels
    )
    threads = cores.available() if workers is None else workers
    if threads < 1:
        raise OptionError(f"workers must be 1 or more, found {workers}")
    target = destination(Path(os.path.realpath(dst)))
    _refuse_overlap(Path(src), target.path)
    listing = scan(Path(src))
    if strict and listing.skipped:
        raise SourceError(_strict_message(Path(src), listing.skipped))
    job = Job(listing, target, options, workers=threads, strict=strict, progress=progress)
    with job.guard:
        found = None if overwrite else _complete(job)
    manifest = found or _pack_locked(job, overwrite=overwrite)
    return PackReport(
        path=Path(dst),
        kind=manifest.kind,
        samples=manifest.samples,
        classes=len(manifest.classes),
        source_bytes=job.source_bytes,
        image_bytes=job.image_bytes,
        bytes=target.bytes(),
        shards=len(manifest.shards),
        skipped=tuple(sorted(job.skipped)),
        skipped_counts=manifest.skipped,
        kept_counts=manifest.kept,
        seconds=time.perf_counter() - started,
        already_complete=not job.ran,
    )


def parse_size(text: int | str) -> int:
    """Bytes from a number or a text such as ``"256MB"`` (decimal) or ``"256MiB"`` (binary).

    Raises:
        OptionError: It is neither, or less than 1.
    """
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", str(text))
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or int(match[1]) < 1:
        raise OptionError(f"a size must be a number such as 256MB or 1GiB, found {text!r}")
    return int(match[1]) * unit


def _options(shard_size: int | str, *, shuffle: bool, seed: int, run_pixels: int | None) -> Options:
    return {
        "run_pixels": run_pixels,  # None: bytes are kept
        "seed": seed if shuffle else None,  # without a shuffle it changes nothing
        "shard_size": parse_size(shard_size),
        "shuffle": shuffle,
    }


def _refuse_overlap(source: Path, target: Path) -> None:
    """Refuse a destination within the source: the next pack would read it as a class."""
    root = Path(os.path.realpath(source))
    if target == root or root in target.parents:
        raise DestinationError(f"{target}: lies within the source {root}; choose another place")


def _strict_message(source: Path, skipped: tuple[Skipped, ...]) -> str:
    shown = "; ".join(f"{entry.name}: {entry.reason}" for entry in skipped[:10])
    more = f"; and {len(skipped) - 10} more" if len(skipped) > 10 else ""
    return f"{source}: {len(skipped)} would be skipped, which --strict forbids: {shown}{more}"


def _complete(job: Job) -> Manifest | None:
    """The manifest of what is there already, if it is what this pack would write."""
    manifest = job.target.manifest()
    if manifest is None:
        return None
    if manifest.source != job.listing.fingerprint:
        what = "was packed from another source, or the source has changed"
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
        with ExitStack() as stack:
            with job.guard:
                stack.enter_context(Lock(target.lock_path, str(target.path)))
                # Another process may have ended between the first look and the lock.
                found = None if overwrite else _complete(job)
                if found is not None:
                    return found
                pack = {"options": job.options, "source": job.listing.fingerprint}
                target.prepare(pack, overwrite=overwrite)
            return job.run()
    except BaseException:
        if created:
            with suppress(OSError):  # whole shards stay, and with them the folder
                target.path.rmdir()
        raise
