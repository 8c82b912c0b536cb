"""Random access to the samples of a folder of tar shards."""

import os
import resource
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids
from fastdata.dataset.manifest import open_shards
from fastdata.errors import ShardError
from fastdata.loaders.readers.packed import PackedSource


class TarSource(PackedSource):
    """Samples of a folder of tar shards; see :class:`fastdata.batch.source.Source`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read manifest and catalog header, and check the shards' sizes.

        Raises:
            NotADatasetError: The path is no folder of shards.
            ManifestError: The manifest is damaged, or the pack unfinished.
            CatalogError: The catalog is damaged, or of another pack.
            ShardError: A shard is missing or of another size.
        """
        folder = Path(os.path.abspath(path))
        super().__init__(*open_shards(folder))
        self._open: dict[int, int] = {}
        weakref.finalize(self, _close_all, self._open).atexit = False
        # leave most descriptors to the program that uses us
        self._files: Any = None  # the native core's view of the shards
        self._most_open = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:  # noqa: ARG002
        """The encoded images of N samples as a ``ByteSource`` of the native core."""
        if self._files is None:
            paths = [os.fsencode(self._file(i)) for i in range(len(self.manifest.shards))]
            self._files = core.FileSet(paths, self._most_open)
        columns = (np.ascontiguousarray(rows[name]) for name in ("shard", "offset", "length"))
        return core.FileRanges(self._files, *columns)

    def close(self) -> None:
        """Close the shards; a later read opens them again."""
        self._files = None
        _close_all(self._open)

    def _bytes(self, sample: int, shard: int, offset: int, length: int) -> bytes:
        stored = self.manifest.shards[shard]
        if offset + length > stored.bytes:
            raise self._outside(sample, stored.name, stored.bytes, offset, length)
        # A shard that was opened stays open until close(), so that no descriptor is closed under
        # another thread's read; with very many shards the rest are opened for each read.
        fd = self._open.get(shard)
        try:
            if fd is None:
                fd = self._keep_open(shard)
            if fd is not None:
                return os.pread(fd, length, offset)
            with open(self._file(shard), "rb") as file:
                return os.pread(file.fileno(), length, offset)
        except OSError as error:
            raise ShardError(f"{self._file(shard)}: cannot read: {error.strerror}") from error

    def _keep_open(self, shard: int) -> int | None:
        """Descriptor of a shard that from now on stays open; None where too many are.

        There is no lock, since a child that is forked while a thread holds one never gets it.
        """
        if len(self._open) >= self._most_open:
            return None
        fd = os.open(self._file(shard), os.O_RDONLY | os.O_CLOEXEC)
        kept = self._open.setdefault(shard, fd)
        if kept != fd:  # another thread opened it meanwhile
            os.close(fd)
        return kept

    def _file(self, shard: int) -> Path:
        return self.path / self.manifest.shards[shard].name


def _close_all(files: dict[int, int]) -> None:
    while files:
        os.close(files.popitem()[1])
