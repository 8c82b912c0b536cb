"""What DALI's own reader needs of a folder of shards."""

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids, Source
from fastdata.dataset.catalog.format import FORMAT_MASK
from fastdata.errors import OptionError, ShardError
from fastdata.images.probe import FORMATS
from fastdata.loaders.readers.tar import TarSource
from fastdata.plan.crop import CenterCrop, Crop, RandomResizedCrop

UNREADABLE = ("gif", "npy")
"""Formats that DALI lacks."""

_OFFSET_BITS = 40  # of a place in a shard


class Places:
    """Ids of samples by where DALI found them: ``FOLDER/SHARD:OFFSET:NAME``."""

    def __init__(self, source: TarSource) -> None:
        """Sort the places of all samples."""
        catalog = source.catalog
        self._start = len(str(source.path)) + 1
        self._shards = {shard.name: i for i, shard in enumerate(source.manifest.shards)}
        shards = catalog.column("shard").astype(np.uint64)
        places = (shards << np.uint64(_OFFSET_BITS)) | catalog.column("offset").astype(np.uint64)
        self._order = np.argsort(places)
        self._sorted: npt.NDArray[np.uint64] = places[self._order]

    def ids(self, infos: list[str]) -> Ids:
        """(N,) ids of samples."""
        places = np.empty(len(infos), np.uint64)
        for row, info in enumerate(infos):
            shard, offset, *_ = info[self._start :].split(":", 2)
            places[row] = (self._shards[shard] << _OFFSET_BITS) | int(offset)
        found = np.searchsorted(self._sorted, places)
        assert (self._sorted[found] == places).all(), "DALI read another place than the catalog's"
        return self._order[found].astype(np.int64)


def check_reader(
    source: Source, crop: Crop, *, everything: bool, shuffle: object
) -> tuple[TarSource, RandomResizedCrop | CenterCrop]:
    """What DALI's reader can do.

    Args:
        source: The data set.
        crop: The crop.
        everything: Whether each sample is wanted once, with one crop, as it is in the file.
        shuffle: How it is to be mixed.

    Raises:
        OptionError: It is asked for something else.
    """
    own = "use reader='fastdata', which can do that"
    if not isinstance(source, TarSource):
        raise OptionError(f"{source.path}: reader='webdataset' reads folders of shards; {own}")
    if not isinstance(crop, RandomResizedCrop | CenterCrop):
        raise OptionError(f"reader='webdataset' knows RandomResizedCrop and CenterCrop; {own}")
    if not everything:
        raise OptionError(
            "reader='webdataset' takes no views, where, weights, draws, repeats or cut: DALI "
            f"chooses the samples and their crops; {own}"
        )
    if shuffle not in (True, False):
        raise OptionError(f"reader='webdataset' takes shuffle=True or False; {own}")
    return source, crop


def check_shards(source: TarSource) -> None:
    """Refuse shards that DALI cannot read.

    Raises:
        OptionError: They hold images of a format that DALI lacks.
        ShardError: One has no index.
    """
    codes = np.unique(source.catalog.column("flags") & FORMAT_MASK)
    if lacking := {FORMATS[code] for code in codes.tolist()} & set(UNREADABLE):
        raise OptionError(
            f"{source.path}: holds {', '.join(sorted(lacking))}, which DALI cannot decode; use "
            "reader='fastdata'"
        )
    for shard in source.manifest.shards:
        if ":" in shard.name:
            raise OptionError(f"{source.path}: reader='webdataset' needs names without ':'")
        index = (source.path / shard.name).with_suffix(".idx")
        if not index.is_file():
            raise ShardError(f"{index}: missing; `fastdata verify --repair` writes it")
