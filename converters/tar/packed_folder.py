"""What is in a folder of shards: manifest, catalog, the shards they name, and anything else."""

import os
import re
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastdata.converters.problems import Problem
from fastdata.dataset import manifest
from fastdata.dataset.catalog.format import MAGIC
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    MARK_NAME,
    REPORT_NAME,
    Manifest,
    Shard,
)
from fastdata.errors import CatalogError, DestinationError, ManifestError, NotADatasetError
from fastdata.system.files import TMP_SUFFIX
from fastdata.system.untrusted import open_regular, read_regular

_NAMES = "|".join(map(re.escape, (CATALOG_NAME, FILE_NAME, MARK_NAME, REPORT_NAME)))
_OURS = re.compile(rf"(shard-\d{{6,}}\.(tar|idx)|{_NAMES})(\.tmp)?")
SHARD_NAME = re.compile(r"shard-\d{6,}\.tar")
LEFTOVER = re.compile(
    r"(shard-\d{6,}\.(tar|idx)|catalog\.fdc|dataset\.json|skipped\.jsonl|\.pack\.\w+)\.tmp"
    r"|\.pack\.(json|journal)"
)


class Part(NamedTuple):
    """A shard that should be there.

    Attributes:
        name: Its file.
        first: Id of its first sample.
        samples: Number of its samples.
        shard: Its entry in the manifest; None if the manifest cannot be read.
    """

    name: str
    first: int
    samples: int
    shard: Shard | None


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds anything that only our data sets do."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    if {CATALOG_NAME, MARK_NAME}.intersection(names) or any(map(SHARD_NAME.fullmatch, names)):
        return True
    return has_manifest(folder)


def has_manifest(folder: Path) -> bool:
    """Whether a folder holds a manifest of ours, damaged or not."""
    try:
        return manifest.FORMAT.encode() in read_regular(folder / FILE_NAME)
    except OSError:
        return False


def has_catalog(folder: Path) -> bool:
    """Whether a folder holds a catalog of ours, damaged or not."""
    try:
        with open_regular(folder / CATALOG_NAME) as fd:
            return os.pread(fd, len(MAGIC), 0) == MAGIC
    except OSError:
        return False


def refuse_foreign(folder: Path, names: set[str]) -> None:
    """Refuse to pack into a folder that holds anything but our own files.

    Args:
        folder: The folder.
        names: What it holds, except a lock.

    Raises:
        DestinationError: It does.
    """
    for name in sorted(names):
        if not _OURS.fullmatch(name):
            raise DestinationError(
                f"{folder}: holds {name!r}, which is not part of a data set; choose another "
                "folder, or empty this one"
            )
    if FILE_NAME in names and not has_manifest(folder):
        raise DestinationError(
            f"{folder / FILE_NAME}: not a manifest of fastdata; choose another folder, or remove "
            "this file"
        )
    # A pack writes its journal first, and removes it only once there is a manifest.
    unknown = {name for name in names if not name.endswith(TMP_SUFFIX)}
    if unknown and not {FILE_NAME, MARK_NAME} & unknown:
        raise DestinationError(
            f"{folder}: holds {min(unknown)!r}, which fastdata did not write (no {FILE_NAME}); "
            "choose another folder, or empty this one"
        )


def open_manifest(folder: Path) -> tuple[Manifest | None, list[Problem]]:
    """The manifest, or what is wrong with it."""
    if not os.path.lexists(folder / FILE_NAME):
        if os.path.lexists(folder / MARK_NAME):
            text = "the pack is unfinished: run the same fastdata pack again to resume"
            return None, [Problem("unfinished", MARK_NAME, None, text)]
        return None, [Problem("missing", FILE_NAME, None, "the file is missing")]
    try:
        found = manifest.load(folder)
    except (ManifestError, NotADatasetError) as error:
        return None, [Problem("damaged", FILE_NAME, None, str(error))]
    if found.kind != "tar":
        return None, [Problem("damaged", FILE_NAME, None, "the manifest of an LMDB file")]
    return found, []


def open_catalog(folder: Path) -> Catalog | None:
    """The catalog, if its header can be read; its rows are checked as they are touched."""
    try:
        return Catalog.from_file(folder / CATALOG_NAME)
    except CatalogError:
        return None


def parts_of(found: Manifest | None, catalog: Catalog | None) -> list[Part]:
    """The shards that there should be, by the manifest or else by the catalog.

    Raises:
        CatalogError: The catalog is damaged.
    """
    if found is not None:
        firsts = accumulate((shard.samples for shard in found.shards), initial=0)
        pairs = zip(found.shards, firsts, strict=False)
        return [Part(shard.name, first, shard.samples, shard) for shard, first in pairs]
    if catalog is None:
        return []
    numbers, starts, counts = np.unique(
        catalog.column("shard"), return_index=True, return_counts=True
    )
    return [
        Part(f"shard-{number:06d}.tar", start, count, None)
        for number, start, count in zip(
            numbers.tolist(), starts.tolist(), counts.tolist(), strict=True
        )
    ]
