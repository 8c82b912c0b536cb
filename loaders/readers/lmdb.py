"""Random access to the samples of an LMDB file."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids
from fastdata.dataset.lmdb.file import open_lmdb
from fastdata.dataset.lmdb.format import ADVICE, sample_key
from fastdata.errors import ShardError
from fastdata.loaders.readers.packed import PackedSource


class LMDBSource(PackedSource):
    """Samples of an LMDB file; see :class:`fastdata.batch.source.Source`.

    The catalog's parts are read when they are first touched.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read manifest and catalog header.

        Raises:
            NotADatasetError: There is no such file, or it was never ours.
            ManifestError: The manifest is damaged, or the pack unfinished.
            CatalogError: The catalog is damaged, or of another pack.
            ShardError: The file is truncated, extended, or its header is damaged.
        """
        file, manifest, catalog, self._lmdb = open_lmdb(Path(os.path.abspath(path)))
        self._file: Any = None  # the native core's view of the file
        super().__init__(file, manifest, catalog)

    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:
        """The encoded images of N samples as a ``ByteSource`` of the native core."""
        if self._file is None:
            try:
                self._file = core.LmdbFile(os.fsencode(self.path))
            except OSError as error:
                raise ShardError(f"{self.path}: {error}; {ADVICE}") from error
        # no entry has more than 4 GiB; what lies beyond must not wrap around into it
        offsets = np.minimum(rows["offset"], 2**32 - 1).astype(np.uint32)
        return core.LmdbValues(
            self._file, ids.astype(np.uint64), offsets, np.ascontiguousarray(rows["length"])
        )

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._file = None
        self._lmdb.close()

    def _bytes(self, sample: int, shard: int, offset: int, length: int) -> bytes:  # noqa: ARG002
        place = self._lmdb.find(sample_key(sample))
        if place is None:
            return b""
        if offset + length > place.size:
            raise self._outside(sample, "its entry", place.size, offset, length)
        return self._lmdb.read(place.offset + offset, length)
