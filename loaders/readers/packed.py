"""What the readers of packed data sets share: catalog, checksums, being sent to other processes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids, Source
from fastdata.dataset.catalog.format import ABSENT
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.manifest import Manifest
from fastdata.errors import CatalogError, SampleError, ShardError
from fastdata.system.checksum import crc32c


class PackedSource(ABC):
    """Samples of a packed data set, by id; see :class:`fastdata.batch.source.Source`.

    It is sent to another process as its path, and opened anew there.

    Attributes:
        path: The folder of shards, or the LMDB file.
        kind: ``"tar"`` or ``"lmdb"``.
        manifest: What the data set holds.
        catalog: Where each sample lies.
        classes: Names in the order of the labels.
        fingerprint: Hash of the content.
        field_names: Extensions of the further fields that samples may have.
    """

    has_checksums = True

    def __init__(self, path: Path, manifest: Manifest, catalog: Catalog) -> None:
        """Take over a manifest and a catalog that belong together."""
        self.path = path
        self.kind = manifest.kind
        self.manifest = manifest
        self.catalog = catalog
        self.classes = manifest.classes
        self.fingerprint = manifest.fingerprint
        self.field_names = manifest.fields

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.catalog)

    def rows(self, ids: Ids) -> npt.NDArray[Any]:
        """Catalog rows of N samples, (N,)."""
        return self.catalog.rows(ids)

    def labels(self) -> npt.NDArray[np.int32]:
        """Labels of all samples, (n,)."""
        return self.catalog.column("label")

    def keys(self, ids: Ids) -> list[str]:
        """Keys of N samples."""
        return self.catalog.keys(ids)

    def read(self, sample: int) -> bytes:
        """Encoded image of one sample.

        Raises:
            SampleError: Its bytes do not match their checksum.
            ShardError: The file that holds it is missing or damaged.
        """
        row = self.catalog.rows([sample])[0]
        return self._read(sample, row["shard"], row["offset"], row["length"], row["crc"])

    def read_fields(self, sample: int, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Further fields of one sample by extension; raises as :meth:`read` does."""
        shard = self.catalog.rows([sample])[0]["shard"]
        fields = {}
        for name in self.field_names if names is None else names:
            place = self.catalog.field(name, [sample])[0]
            if place["offset"] != ABSENT:
                fields[name] = self._read(
                    sample, shard, place["offset"], place["length"], place["crc"]
                )
        return fields

    @abstractmethod
    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:
        """The encoded images of N samples as a ``ByteSource`` of the native core."""

    @abstractmethod
    def close(self) -> None:
        """Release files; a later read opens them again."""

    @abstractmethod
    def _bytes(self, sample: int, shard: int, offset: int, length: int) -> bytes:
        """The bytes at a place; fewer of them where the file ends. LMDB finds them by sample.

        Raises:
            ShardError: The place is outside of what the manifest, or the LMDB, says there is.
        """

    def _read(self, sample: int, shard: int, offset: int, length: int, crc: int) -> bytes:
        if not 0 <= int(shard) < len(self.manifest.shards):
            raise ShardError(
                f"{self.path}: sample {self._key(sample)!r}: the catalog says shard {shard}, there "
                f"are {len(self.manifest.shards)}; restore the catalog, or pack again"
            )
        data = self._bytes(sample, int(shard), int(offset), int(length))
        if len(data) != length or crc32c(data) != crc:
            raise SampleError(
                f"{self.path}: sample {self._key(sample)!r} in {self.manifest.shards[shard].name}: "
                f"{len(data)} bytes at {offset} do not match their checksum; "
                "restore the file, or pack again"
            )
        return data

    def _key(self, sample: int) -> str:
        (key,) = self.catalog.keys([sample])
        return key

    def _outside(self, sample: int, what: str, size: int, offset: int, length: int) -> ShardError:
        """The error of a sample that the catalog says lies where its file does not reach."""
        return ShardError(
            f"{self.path}: sample {self._key(sample)!r}: {length} bytes at {offset} lie outside of "
            f"the {size} bytes of {what}; restore the catalog, or pack again"
        )

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[type, Path, str]]:
        """Send the path, not the catalog."""
        return _reopen, (type(self), self.path, self.fingerprint)


def _reopen(kind: Callable[[Path], Source], path: Path, fingerprint: str) -> Source:
    """Open a data set in another process, and see that it is still the same one."""
    source = kind(path)
    if source.fingerprint != fingerprint:
        raise CatalogError(f"{path}: was replaced by another data set; start again")
    return source
