"""The parts of a split: where each goes, and what came of all of them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fastdata.converters.job import Progress
from fastdata.converters.pack_listing import PackReport
from fastdata.converters.sources.listing import Listing
from fastdata.errors import DestinationError


def part_path(path: Path, name: str) -> Path:
    """Where a part of a split goes.

    Raises:
        DestinationError: A link has the name of its folder: only the one above was named.
    """
    if path.name.endswith(".lmdb"):
        return path.with_name(f"{path.name.removesuffix('.lmdb')}-{name}.lmdb")
    if (path / name).is_symlink():
        raise DestinationError(f"{path / name}: a symbolic link; remove it")
    return path / name


def behind(progress: Progress, parts: list[Listing], number: int) -> Progress:
    """Progress of one part as progress of all of them."""
    counts = [len(part) for part in parts]
    sizes = [int(part.sizes.sum()) for part in parts]

    def step(count: int, size: int, _counts: int, _sizes: int) -> None:
        done = sum(counts[:number]) + count, sum(sizes[:number]) + size
        progress(*done, sum(counts), sum(sizes))

    return step


def together(path: Path, reports: Mapping[str, PackReport]) -> PackReport:
    """What was done for all parts of a split."""
    each = list(reports.values())
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
        kept_counts=counts("kept_counts"),
        noted=counts("noted"),
        resumed=sum(r.resumed for r in each),
        limited_by=slowest.limited_by,
        seconds=sum(r.seconds for r in each),
        already_complete=all(r.already_complete for r in each),
        parts=reports,
    )
