"""Samples of a data set in memory, to measure decoding without storage."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids
from fastdata.dataset.catalog.format import ROW
from fastdata.system.files import above_standard


class Resident:
    """Encoded images in an anonymous file in memory, as a :class:`~fastdata.batch.source.Source`.

    The code that reads shards reads them, but no disk.

    Attributes:
        path: The data set that they come from, for errors.
    """

    kind = "tar"
    classes: tuple[str, ...] = ()
    field_names: tuple[str, ...] = ()
    fingerprint = ""

    def __init__(
        self,
        path: Path,
        images: Sequence[bytes],
        rows: npt.NDArray[Any],
        keys: Sequence[str],
        *,
        has_checksums: bool,
    ) -> None:
        """Copy N images into memory.

        Args:
            path: The data set that they come from.
            images: Their bytes.
            rows: (N,) catalog rows; shard and offset are not used.
            keys: Their keys.
            has_checksums: Whether the rows have checksums.
        """
        self.path = path
        self.has_checksums = has_checksums
        self._keys = keys
        self._rows = np.zeros(len(images), ROW)
        for name in ("crc", "width", "height", "flags"):
            self._rows[name] = rows[name]
        self._rows["length"] = [len(image) for image in images]
        self._rows["offset"][1:] = np.cumsum(self._rows["length"].astype(np.uint64))[:-1]
        self._file = above_standard(os.memfd_create("fastdata"))
        self._shards: Any = None  # the native core's view of it
        with os.fdopen(self._file, "wb", closefd=False) as file:
            file.writelines(images)

    def __len__(self) -> int:
        """Number of images."""
        return len(self._rows)

    def rows(self, ids: Ids) -> npt.NDArray[Any]:
        """Catalog rows of N images, (N,)."""
        rows: npt.NDArray[Any] = self._rows[ids]
        return rows

    def labels(self) -> npt.NDArray[np.int32]:
        """(N,) of -1: no image has a label here."""
        return np.full(len(self), -1, np.int32)

    def keys(self, ids: Ids) -> list[str]:
        """Keys of N images."""
        return [self._keys[number] for number in ids.tolist()]

    def read(self, sample: int) -> bytes:
        """Bytes of one image."""
        row = self._rows[sample]
        return os.pread(self._file, int(row["length"]), int(row["offset"]))

    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:  # noqa: ARG002
        """N images as a ``ByteSource`` of the native core."""
        if self._shards is None:
            self._shards = core.FileSet([b"/proc/self/fd/%d" % self._file], 1)
        columns = (np.ascontiguousarray(rows[name]) for name in ("shard", "offset", "length"))
        return core.FileRanges(self._shards, *columns)

    def read_fields(
        self,
        sample: int,  # noqa: ARG002
        names: Collection[str] | None = None,  # noqa: ARG002
    ) -> dict[str, bytes]:
        """No fields."""
        return {}

    def close(self) -> None:
        """Release the memory."""
        self._shards = None
        os.close(self._file)
