"""From images in whatever form to a packed data set: ``fastdata pack SRC DST``."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from fastdata import native
from fastdata.converters.estimate import estimate
from fastdata.converters.images.coding import Coding
from fastdata.converters.images.transcode import RUN_PIXELS
from fastdata.converters.job import Progress
from fastdata.converters.pack_listing import PackReport, pack_listing
from fastdata.converters.parts import behind, part_path, together
from fastdata.converters.sources.listing import Listing, count_reasons
from fastdata.converters.sources.open import AnySource, StrPath, list_source
from fastdata.converters.sources.split import parse_split
from fastdata.converters.sources.spool import room_for
from fastdata.errors import DestinationError, OptionError, SourceError
from fastdata.images.limits import MAX_PIXELS
from fastdata.system import resources
from fastdata.system.mounts import network_file_system
from fastdata.system.threads import check_count

__all__ = ["Choice", "PackPlan", "PackReport", "estimate_pack", "pack", "parse_size"]

_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{f"{mark}{end}": 1000**power for power, mark in enumerate("kmgt", 1) for end in ("", "b")},
    **{f"{mark}ib": 1024**power for power, mark in enumerate("kmgt", 1)},
}


class Choice(TypedDict, total=False):
    """What is packed, and how it is coded.

    Attributes:
        kind: What the source is, where its content does not tell.
        columns: What a table calls the ``"image"``, the ``"label"`` and the ``"key"``.
        manifest: A list of the files to pack, CSV or JSON lines, with labels and fields; see
            :func:`fastdata.converters.sources.file_list.list_from`.
        fields: What becomes fields of samples: extensions of files beside the images of a folder;
            columns of a table; members of tars, all of them without it.
        classes: A file with the names of the classes, one a line, in the order of labels.
        dedupe: Leaves out files of the same bytes as another.
        limit: Most files, drawn at random, always the same.
        workers: Reading threads; as many as there are cores without it.
        keep_bytes: Whether image bytes are kept as they are. Otherwise JPEGs are coded anew,
            without any change of a pixel, in restart runs of which a crop decodes only those it
            needs. Where the native core is missing, bytes are kept.
        run_pixels: Width of these runs.
        resize: As in :class:`fastdata.converters.images.coding.Coding`, and so the next three.
        format: Of images that are coded anew.
        quality: Of JPEGs that are coded anew.
        orient: Whether pixels are turned upright by EXIF.
        max_pixels: Largest image; larger ones are left out.
        damaged: ``"keep"`` packs of a damaged JPEG what libjpeg-turbo makes of it, and names it in
            the list of what was left out.
    """

    kind: str | None
    columns: Mapping[str, str]
    manifest: StrPath | None
    fields: tuple[str, ...]
    classes: StrPath | None
    dedupe: bool
    limit: int | None
    workers: int | None
    keep_bytes: bool
    run_pixels: int
    resize: str | None
    format: str | None
    quality: int
    orient: Literal["keep", "apply"]
    max_pixels: int
    damaged: Literal["skip", "keep"]


@dataclass(frozen=True)
class PackPlan:
    """What a pack would do.

    Attributes:
        samples: Number of samples; files that are no image count in proportion.
        classes: Files of each class by its name.
        bytes: Of all shards, about.
        seconds: To read and code all files, about.
        skipped_counts: How many files would be left out unread, by reason.
    """

    samples: int
    classes: Mapping[str, int]
    bytes: int
    seconds: float
    skipped_counts: Mapping[str, int]


def pack(
    src: AnySource,
    dst: StrPath,
    *,
    split: str | None = None,
    shard_size: int | str = "256MB",
    shuffle: bool = True,
    seed: int = 0,
    network: bool = False,
    overwrite: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
    **choice: Unpack[Choice],
) -> PackReport:
    """Pack images into tar shards, or into one LMDB file.

    The content depends on the source and on what is said here of its content, not on ``workers``.
    Shards appear one by one, each whole; the manifest comes last and makes them a data set. Where
    a pack was interrupted or failed, the same call continues behind its last whole shard, and ends
    with the same bytes.

    Args:
        src: A folder of images, with class folders or flat; tars of WebDataset, a packed data set,
            LMDB, TFRecord, Parquet, Arrow, HDF5 or MDS, a file, a folder of them or a pattern such
            as ``"data/train-*"``; or samples, each a pair (image, label) or a mapping, as data
            sets of torchvision and others give them.
        dst: A name that ends in ``.lmdb`` for one LMDB file; else a folder for shards, new, empty
            or packed before. With ``split``, a folder that gets a folder for each part, or the name
            that each part's is made of: ``out-train.lmdb`` of ``out.lmdb``.
        split: Parts and their shares, ``"train=0.9,val=0.1"``. A sample's part depends on its key
            alone, so it stays the same when files are added.
        shard_size: Most bytes of a shard, a number or a text such as ``"256MB"`` or ``"1GiB"``.
        shuffle: Whether samples are packed in random order rather than that of ImageFolder.
        seed: Of that order.
        network: Allows an LMDB file on a network file system.
        overwrite: Replaces a data set that is there, and starts anew where one is unfinished.
        strict: Makes any file that would be skipped an error.
        progress: Called after each sample, on the calling thread.
        **choice: What is packed, and how it is coded: see :class:`Choice`.

    Returns:
        What was done; of a split, the sum of its parts.

    Raises:
        OptionError: An argument is out of range.
        SourceError: The source is missing or holds no image, or ``strict`` found a file to skip.
        MissingExtraError: The source needs a package that is not installed.
        DestinationError: The destination holds something else, or cannot be written.
        BusyError: Another process packs into it.
        CorruptError: A data set is there but damaged, which ``overwrite`` replaces; or files of
            the source are.
    """
    bytes_of_shard = parse_size(shard_size)
    shares = None if split is None else parse_split(split)
    path = Path(dst)
    if path.name.endswith(".lmdb") and not network:
        _refuse_network(path)
    coding = _coding(choice)
    listing = _listing(src, choice, room_for(path))

    def pack_part(part: Listing, target: Path, step: Progress | None) -> PackReport:
        return pack_listing(
            part,
            target,
            coding,
            shard_size=bytes_of_shard,
            workers=choice.get("workers"),
            shuffle=shuffle,
            seed=seed,
            overwrite=overwrite,
            strict=strict,
            progress=step,
        )

    if shares is None:
        return pack_part(listing, path, progress)
    parts = shares.parts(listing)
    if empty := [name for name, part in parts.items() if not len(part)]:
        raise SourceError(
            f"{listing.root}: no sample falls to {', '.join(empty)}; split it otherwise"
        )
    reports = {}
    for number, (name, part) in enumerate(parts.items()):
        step = None if progress is None else behind(progress, list(parts.values()), number)
        reports[name] = pack_part(part, part_path(path, name), step)
    return together(path, reports)


def estimate_pack(src: AnySource, **choice: Unpack[Choice]) -> PackPlan:
    """What :func:`pack` would do, from a sample of the files; nothing is written.

    Raises:
        OptionError: An argument is out of range.
        SourceError: The source is missing or holds no image.
    """
    coding = _coding(choice)
    listing = _listing(src, choice)
    found = estimate(listing, coding, choice.get("workers") or resources.cpu_count())
    counts = Counter(listing.labels.tolist())
    return PackPlan(
        samples=found.samples,
        classes={name: counts[label] for label, name in enumerate(listing.classes)},
        bytes=found.bytes,
        seconds=found.seconds,
        skipped_counts=count_reasons(listing.skipped),
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


def _coding(choice: Choice) -> Coding:
    keep = choice.get("keep_bytes", False) or native.load() is None
    return Coding(
        None if keep else choice.get("run_pixels", RUN_PIXELS),
        choice.get("resize"),
        choice.get("quality", 90),
        choice.get("format"),
        choice.get("orient", "keep"),
        choice.get("max_pixels", MAX_PIXELS),
        choice.get("damaged", "skip"),
    )


def _listing(src: AnySource, choice: Choice, room: Path | None = None) -> Listing:
    workers = choice.get("workers")
    if workers is not None:
        check_count("workers", workers)
    return list_source(
        src,
        kind=choice.get("kind"),
        columns=choice.get("columns"),
        manifest=choice.get("manifest"),
        fields=choice.get("fields", ()),
        classes=choice.get("classes"),
        dedupe=choice.get("dedupe", False),
        limit=choice.get("limit"),
        workers=workers or resources.cpu_count(),
        room=room,
    )


def _refuse_network(path: Path) -> None:
    system = network_file_system(path)
    if system is not None:
        raise DestinationError(
            f"{path}: lies on a network file system ({system}); choose a local disk, or tar "
            "shards, or --network where no other host touches the file"
        )
