"""Several packed data sets as one, with a share of each epoch for each."""

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids, Source
from fastdata.dataset.manifest import digest_text
from fastdata.errors import OptionError
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.packed import open_source
from fastdata.plan.epochs import Stratum


@dataclass(frozen=True)
class Mix:
    """Data sets to be mixed: ``fd.Loader(fd.Mix({"birds/": 0.7, "bugs.lmdb": 0.3}), 256)``.

    Each epoch draws from each of them in exactly these shares, to one sample. Classes are those of
    all of them together; equal names are one class.

    Args:
        shares: Path of each packed data set, and its share; they are taken in proportion.
    """

    shares: Mapping[str, float] | Mapping[Path, float]


class MixedSource:
    """Samples of several packed data sets, one after the other; a ``Source`` as any other.

    Attributes:
        path: The data sets' paths, joined by " + ".
        kind: ``"mix"``.
        fingerprint: Of the fingerprints and the shares.
        classes: Names of all classes, in the order in which they first come.
        has_checksums: True.
    """

    kind = "mix"
    has_checksums = True

    def __init__(self, mix: Mix) -> None:
        """Open the data sets.

        Raises:
            OptionError: There is none, a share is no positive number, or one is not packed.
        """
        if not mix.shares:
            raise OptionError("a mix needs at least one data set")
        for path, share in mix.shares.items():
            if not (math.isfinite(share) and share > 0):
                raise OptionError(f"{os.fspath(path)}: a share must be positive, found {share}")
        self._shares = list(mix.shares.values())
        self._sources: list[Source] = []
        for path in mix.shares:
            source = open_source(path)
            if isinstance(source, FolderSource):
                raise OptionError(f"{source.path}: only packed data sets can be mixed; pack it")
            self._sources.append(source)
        self._starts = np.cumsum([0, *map(len, self._sources)])
        self.path = Path(" + ".join(str(source.path) for source in self._sources))
        self.field_names = tuple(dict.fromkeys(n for s in self._sources for n in s.field_names))
        self.classes = tuple(dict.fromkeys(n for s in self._sources for n in s.classes))
        self._labels = [
            np.array([self.classes.index(name) for name in s.classes] + [-1], np.int32)
            for s in self._sources
        ]
        parts = [f"{s.fingerprint} {x!r}" for s, x in zip(self._sources, self._shares, strict=True)]
        self.fingerprint = digest_text(" ".join(parts).encode())

    def strata(self, ids: Ids | range, draws: int | None) -> tuple[Stratum, ...]:
        """The draws of an epoch from each data set.

        Args:
            ids: Chosen samples of all of them, in rising order.
            draws: Samples in an epoch; None means as many as were chosen.

        Raises:
            OptionError: Nothing was chosen of one of them.
        """
        total = len(ids) if draws is None else draws
        exact = [total * share / math.fsum(self._shares) for share in self._shares]
        counts = [math.floor(x) for x in exact]
        # largest remainders: the counts add up, and none is off by a whole sample
        by_rest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])  # largest first
        for i in by_rest[: total - sum(counts)]:
            counts[i] += 1
        found = []
        for number, count in enumerate(counts):
            first, end = self._starts[number : number + 2].tolist()
            mine: Ids | range = range(first, end)
            if not isinstance(ids, range):
                mine = ids[(ids >= first) & (ids < end)]
            if not len(mine):
                raise OptionError(f"{self._sources[number].path}: where leaves no sample of it")
            found.append(Stratum(mine, count))
        return tuple(found)

    def __len__(self) -> int:
        """Samples of all data sets."""
        return int(self._starts[-1])

    def rows(self, ids: Ids) -> npt.NDArray[Any]:
        """Catalog rows of N samples, (N,), with labels of the mix."""
        numbers, local = self._split(ids)
        first = self._sources[0].rows(np.zeros(0, np.int64))
        out = np.empty(len(ids), first.dtype)
        for number, places in _by_number(numbers):
            rows = self._sources[number].rows(local[places])
            rows["label"] = self._labels[number][rows["label"]]  # -1 is the last entry
            out[places] = rows
        return out

    def labels(self) -> npt.NDArray[np.int32]:
        """Labels of all samples, (n,)."""
        parts = zip(self._labels, self._sources, strict=True)
        return np.concatenate([names[source.labels()] for names, source in parts])

    def keys(self, ids: Ids) -> list[str]:
        """Keys of N samples."""
        numbers, local = self._split(np.asarray(ids, np.int64))
        found = [""] * len(numbers)
        for number, places in _by_number(numbers):
            keys = self._sources[number].keys(local[places])
            for place, key in zip(places.tolist(), keys, strict=True):
                found[place] = key
        return found

    def read(self, sample: int) -> bytes:
        """Encoded image of one sample."""
        source, local = self._source_of(sample)
        return source.read(local)

    def read_fields(self, sample: int, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Further fields of one sample by extension."""
        source, local = self._source_of(sample)
        if names is not None:
            names = set(names) & set(source.field_names)
        return source.read_fields(local, names)

    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:
        """The encoded images of N samples as a ``ByteSource`` of the native core."""
        numbers, local = self._split(ids)
        parts: list[Any] = []
        part_of, row_of = (np.empty(len(ids), np.uint32) for _ in range(2))
        for number, places in _by_number(numbers):
            part_of[places] = len(parts)
            row_of[places] = np.arange(len(places))
            parts.append(self._sources[number].encoded(core, local[places], rows[places]))
        return core.MixedRows(parts, part_of, row_of)

    def close(self) -> None:
        """Release files; a later read opens them again."""
        for source in self._sources:
            source.close()

    def _split(self, ids: Ids) -> tuple[npt.NDArray[np.int64], Ids]:
        """Number of the data set, and id within it, of N samples."""
        numbers = np.searchsorted(self._starts, ids, side="right") - 1
        return numbers, ids - self._starts[numbers]

    def _source_of(self, sample: int) -> tuple[Source, int]:
        numbers, local = self._split(np.array([sample], np.int64))
        return self._sources[int(numbers[0])], int(local[0])


def _by_number(numbers: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    return [(n, np.flatnonzero(numbers == n)) for n in np.unique(numbers).tolist()]
