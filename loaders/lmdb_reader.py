"""Random access to the samples of an LMDB file."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.catalog import Catalog
from fastdata.errors import CatalogError, ShardError
from fastdata.lmdb_file import (
    CATALOG_KEY,
    LMDBFile,
    open_file,
    part_key,
    read_manifest,
    sample_key,
)
from fastdata.lmdb_format import ADVICE
from fastdata.loaders.packed import PackedSource
from fastdata.source import Ids


class LMDBSource(PackedSource):
    """Samples of an LMDB file; see :class:`fastdata.source.Source`.

    The catalog's parts are read when they are first touched.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read manifest and catalog header.

        Raises:
            NotADatasetError: There is no such file, or it was never ours.
            ManifestError: The manifest is damaged, or the pack unfinished.
            CatalogError: The catalog is damaged.
            ShardError: The file is truncated, extended, or its header is damaged.
        """
        file = Path(os.path.abspath(path))
        self._lmdb = open_file(file)
        manifest = read_manifest(self._lmdb)
        header = self._lmdb.get(CATALOG_KEY)
        if header is None:
            raise CatalogError(f"{file}: holds no catalog; {ADVICE}")
        lmdb = self._lmdb
        self._file: Any = None  # the native core's view of the file
        super().__init__(
            file,
            manifest,
            Catalog.from_parts(header, lambda number: _part(lmdb, file, number), str(file)),
        )

    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:
        """The encoded images of N samples as a ``ByteSource`` of the native core."""
        if self._file is None:
            try:
                self._file = core.LmdbFile(os.fsencode(self.path))
            except OSError as error:
                raise ShardError(f"{self.path}: {error}; {ADVICE}") from error
        offsets = rows["offset"].astype(np.uint32)
        return core.LmdbValues(
            self._file, ids.astype(np.uint64), offsets, np.ascontiguousarray(rows["length"])
        )

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._file = None
        self._lmdb.close()

    def _bytes(self, sample: int, shard: int, offset: int, length: int) -> bytes:  # noqa: ARG002
        place = self._lmdb.find(sample_key(sample))
        if place is None or offset + length > place.size:
            return b""
        return self._lmdb.read(place.offset + offset, length)


def _part(lmdb: LMDBFile, file: Path, number: int) -> memoryview:
    part = lmdb.get(part_key(number))
    if part is None:
        raise CatalogError(f"{file}: holds no catalog part {number}; {ADVICE}")
    return memoryview(part)
