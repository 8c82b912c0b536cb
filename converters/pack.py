"""From images in whatever form to a packed data set: ``fastdata pack SRC DST``."""

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from fastdata.converters.images.coding import RUN_PIXELS, Coding
from fastdata.converters.pack_run import Output, PackRun, Progress
from fastdata.converters.sources.listing import Listing
from fastdata.converters.sources.open import AnySource, Selection, StrPath, list_source
from fastdata.converters.sources.subset import parse_split
from fastdata.converters.stages import Stage
from fastdata.dataset.manifest import Skipped
from fastdata.errors import DestinationError, OptionError, SourceError
from fastdata.images.limits import MAX_PIXELS
from fastdata.system import resources
from fastdata.system.mounts import network_file_system
from fastdata.system.threads import check_count

__all__ = ["PackReport", "pack", "parse_size"]

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
        image_bytes: Bytes of their images as stored; 0 if ``already_complete``.
        bytes: Bytes of all files of the data set.
        shards: Number of shards, or of groups within an LMDB file.
        skipped: Name and reason of each file that was left out, sorted; if ``already_complete``,
            only of those that were left out unread.
        skipped_counts: How many files were left out, by reason.
        not_recoded: How many JPEGs could not be re-encoded and were stored unchanged, by reason.
        lossy_notes: How many images were packed with a change that is worth knowing, by change.
        resumed: Samples that an interrupted pack of the same had finished.
        bottleneck: The slowest stage, ``"reading"``, ``"coding"`` or ``"writing"``; None if
            ``already_complete``.
        seconds: Time it took.
        already_complete: Whether the data set was there already, from the same source and with the
            same options, so that nothing was written.
        parts: The report of each part of a split, by name; all else is then their sum. Empty
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
    not_recoded: Mapping[str, int]
    lossy_notes: Mapping[str, int]
    resumed: int
    bottleneck: Stage | None
    seconds: float
    already_complete: bool
    parts: Mapping[str, "PackReport"] = field(default_factory=dict)


def pack(
    src: AnySource,
    dst: StrPath,
    *,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
    manifest: StrPath | None = None,
    fields: tuple[str, ...] = (),
    classes: StrPath | None = None,
    dedupe: bool = False,
    limit: int | None = None,
    split: str | None = None,
    keep_bytes: bool = False,
    run_pixels: int = RUN_PIXELS,
    resize: str | None = None,
    format: str | None = None,
    quality: int = 90,
    orient: Literal["keep", "apply"] = "keep",
    max_pixels: int = MAX_PIXELS,
    damaged: Literal["skip", "keep"] = "skip",
    shard_size: int | str = "256MB",
    shuffle: bool = True,
    seed: int = 0,
    workers: int | None = None,
    network: bool = False,
    overwrite: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> PackReport:
    """Pack images into tar shards, or into one LMDB file.

    If a pack is interrupted, the same call resumes it after the last finished shard. The result is
    the same to the byte, and does not depend on ``workers``. The manifest is written last: without
    it a pack is unfinished.

    Args:
        src: Images to pack. A folder, with or without a sub-folder for each class; or WebDataset
            tars, a packed data set, LMDB, TFRecord, Parquet, Arrow, HDF5 or MDS, given as a file, a
            folder or a pattern such as ``"data/train-*"``; or samples in memory, each a pair
            (image, label) or a mapping, such as a torchvision data set.
        dst: Where to write. A name that ends in ``.lmdb`` makes one LMDB file, any other name a
            folder of tar shards, which must be new, empty, or hold an earlier pack.
        kind: Source format, if it cannot be detected: ``"folder"``, ``"packed"``,
            ``"webdataset"``, ``"lmdb"``, ``"tfrecord"``, ``"parquet"``, ``"arrow"``, ``"hdf5"`` or
            ``"mds"``.
        columns: Columns of a table that hold the ``"image"``, the ``"label"`` and the ``"key"``,
            such as ``{"image": "img"}``, if their names are unusual.
        manifest: CSV or JSON Lines file that lists the images of ``src`` to pack, with columns
            ``path`` and, if wanted, ``label``; other columns become fields.
        fields: Further data to store with each image: extensions of files beside the images of a
            folder, columns of a table, or members of tar samples (default: all of them).
        classes: File of class names, one a line, in label order. Default: sorted folder names, or
            what the source says.
        dedupe: Skip files whose bytes equal an earlier file's.
        limit: Pack at most this many randomly chosen files, the same ones each time.
        split: Divide the samples into parts, such as ``"train=0.9,val=0.1"``. Each part is packed
            into its own folder in ``dst``, or to ``out-train.lmdb`` if ``dst`` is ``out.lmdb``. A
            sample's part depends only on its key, so it does not change when files are added.
        keep_bytes: Store image files unchanged. By default JPEGs are re-encoded without loss: they
            get restart markers, so that a crop decodes only the part of the file that it needs.
            Files are also stored unchanged where the native core is missing.
        run_pixels: Distance between restart markers in pixels, 8 to 65535.
        resize: ``"256"`` shrinks the shorter side to 256 pixels, ``"longest:512"`` the longer side
            to 512, and ``"224x224"`` resizes to exactly that width and height.
        format: Re-encode all images as ``"jpeg"``, ``"png"`` or ``"raw"`` (an NPY file of uint8
            pixels). Default: the format stays, or becomes PNG if loaders cannot read it.
        quality: JPEG quality of images that are resized or re-encoded, 1 to 100.
        orient: ``"apply"`` rotates images upright by their EXIF orientation; ``"keep"`` leaves
            pixels as stored, which is how torchvision's ImageFolder reads them.
        max_pixels: Skip images with more pixels (width times height).
        damaged: ``"skip"`` leaves damaged JPEGs out; ``"keep"`` packs what can be decoded of them.
            Both list them in skipped.jsonl.
        shard_size: Maximum bytes of a shard, as a number or as ``"256MB"`` or ``"1GiB"``.
        shuffle: Whether to pack samples in random order. If not, they are in ImageFolder's order.
        seed: Random seed for shuffling.
        workers: Number of threads that read and code. Default: one for each core.
        network: Allow writing an LMDB file to a network file system, if no other host uses it.
        overwrite: Replace a data set or an unfinished pack in ``dst``.
        strict: Fail if a file would be skipped.
        progress: Called after each sample, on the calling thread, with samples done, bytes done,
            samples in all and bytes in all.

    Returns:
        What was done; for a split, the sum of its parts.

    Raises:
        OptionError: An argument is out of range or contradicts another.
        SourceError: The source is missing or holds no image, or ``strict`` found a file to skip.
        MissingExtraError: The source needs a package that is not installed.
        DestinationError: The destination holds something else, or cannot be written.
        BusyError: Another process packs into it.
        CorruptError: The data set in ``dst`` is damaged, which ``overwrite`` replaces; or files of
            the source are.
    """
    path = Path(dst)
    selection = Selection(kind, columns or {}, manifest, fields, classes, dedupe, limit)
    coding = Coding(
        run_pixels=None if keep_bytes else run_pixels,
        resize=resize,
        quality=quality,
        format=format,
        orient=orient,
        max_pixels=max_pixels,
        damaged=damaged,
    ).possible()
    output = Output(parse_size(shard_size), shuffle, seed, overwrite, strict)
    workers = thread_count(workers)
    # Whoever maps an LMDB on another host may see pages of two states at once.
    if path.name.endswith(".lmdb") and not network:
        _refuse_network(path)
    pack_part = partial(_pack_part, coding=coding, output=output, workers=workers)
    if split is None:
        listing = list_source(src, selection, workers, path)
        return pack_part(listing, path, progress=progress)
    shares = parse_split(split)  # before listing, which may take minutes
    listing = list_source(src, selection, workers, path)
    parts = shares.parts(listing)
    if empty := [name for name, part in parts.items() if not len(part)]:
        raise SourceError(
            f"{listing.root}: no sample falls to {', '.join(empty)}; change the shares"
        )
    reports = {}
    for number, (name, part) in enumerate(parts.items()):
        step = None if progress is None else _progress_of(progress, list(parts.values()), number)
        reports[name] = pack_part(part, _part_path(path, name), progress=step)
    return _sum(path, reports)


def thread_count(workers: int | None) -> int:
    """Number of threads that read and code: as many as there are cores, if None.

    Raises:
        OptionError: It is out of range.
    """
    if workers is None:
        return resources.cpu_count()
    check_count("workers", workers)
    return workers


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


def _refuse_network(path: Path) -> None:
    system = network_file_system(path)
    if system is not None:
        raise DestinationError(
            f"{path}: on a network file system ({system}); choose a local disk or tar shards, or "
            "use --network if no other host uses the file"
        )


def _pack_part(
    listing: Listing,
    path: Path,
    *,
    coding: Coding,
    output: Output,
    workers: int,
    progress: Progress | None,
) -> PackReport:
    started = time.perf_counter()
    run = PackRun(listing, path, coding, output, workers=workers, progress=progress)
    manifest = run.run()
    return PackReport(
        path=path,
        kind=manifest.kind,
        samples=manifest.samples,
        classes=len(manifest.classes),
        source_bytes=run.tally.source_bytes,
        image_bytes=run.tally.image_bytes,
        bytes=run.target.total_bytes(),
        shards=len(manifest.shards),
        skipped=tuple(run.skipped()),
        skipped_counts=manifest.skipped,
        not_recoded=manifest.kept,
        lossy_notes=manifest.noted,
        resumed=run.resumed,
        bottleneck=run.bottleneck,
        seconds=time.perf_counter() - started,
        already_complete=run.already_complete,
    )


def _part_path(path: Path, name: str) -> Path:
    """Where a part of a split goes.

    Raises:
        DestinationError: A link has the name of its folder: only the one above was named.
    """
    if path.name.endswith(".lmdb"):
        return path.with_name(f"{path.name.removesuffix('.lmdb')}-{name}.lmdb")
    if (path / name).is_symlink():
        raise DestinationError(f"{path / name}: a symbolic link; remove it")
    return path / name


def _progress_of(progress: Progress, parts: list[Listing], number: int) -> Progress:
    """Progress of one part as progress of all of them."""
    counts = [len(part) for part in parts]
    sizes = [int(part.sizes.sum()) for part in parts]

    def step(count: int, size: int, _counts: int, _sizes: int) -> None:
        done = sum(counts[:number]) + count, sum(sizes[:number]) + size
        progress(*done, sum(counts), sum(sizes))

    return step


def _sum(path: Path, reports: Mapping[str, PackReport]) -> PackReport:
    """What was done for all parts of a split."""
    each = list(reports.values())
    # Parts are packed one after the other, so the longest says most about the whole.
    slowest = max(each, key=lambda report: report.seconds)

    def counts(name: str) -> Mapping[str, int]:
        return dict(sum((Counter(getattr(r, name)) for r in each), Counter[str]()))

    return PackReport(
        path=path,
        kind=each[0].kind,
        samples=sum(r.samples for r in each),
        classes=each[0].classes,
        source_bytes=sum(r.source_bytes for r in each),
        image_bytes=sum(r.image_bytes for r in each),
        bytes=sum(r.bytes for r in each),
        shards=sum(r.shards for r in each),
        skipped=tuple(sorted({entry for r in each for entry in r.skipped})),
        skipped_counts=counts("skipped_counts"),
        not_recoded=counts("not_recoded"),
        lossy_notes=counts("lossy_notes"),
        resumed=sum(r.resumed for r in each),
        bottleneck=slowest.bottleneck,
        seconds=sum(r.seconds for r in each),
        already_complete=all(r.already_complete for r in each),
        parts=reports,
    )
