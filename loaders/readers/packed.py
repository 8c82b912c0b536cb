"""Random access to the samples of packed data sets, and which reader a path needs."""

import os
import resource
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids, Source
from fastdata.dataset import manifest
from fastdata.dataset.catalog.format import ABSENT
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.lmdb.file import open_lmdb
from fastdata.dataset.lmdb.format import ADVICE, sample_key
from fastdata.dataset.manifest import Manifest, open_shards
from fastdata.errors import CatalogError, SampleError, ShardError
from fastdata.loaders.readers.folder import FolderSource
from fastdata.system.checksum import crc32c


class PackedSource(ABC):
    """Samples of a packed data set, by id; see :class:`fastdata.batch.source.Source`.

    It is sent to another process as its path, and reopened there.

    Attributes:
        path: The folder of shards, or the LMDB file.
        kind: ``"tar"`` or ``"lmdb"``.
        manifest: Names, sizes and digests of its files.
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
            ShardError: The place is outside of the shard, or of the LMDB's entry.
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


AnySource = TarSource | LMDBSource | FolderSource


def source_class(path: str | os.PathLike[str]) -> type[AnySource]:
    """The reader for what lies at a path: shards, an LMDB file, or a folder of images.

    Raises:
        NotADatasetError: There is nothing.
        ManifestError: There is a pack that was never finished.
    """
    where = Path(path)
    if where.is_file():
        return LMDBSource
    if (where / manifest.FILE_NAME).exists():
        return TarSource
    if where.is_dir() and not manifest.is_unfinished(where):
        return FolderSource
    raise manifest.absent(where)


def open_source(path: str | os.PathLike[str]) -> AnySource:
    """The data set at a path.

    Raises:
        NotADatasetError: There is none.
        CorruptError: It is damaged.
    """
    return source_class(path)(path)


def _reopen(kind: Callable[[Path], Source], path: Path, fingerprint: str) -> Source:
    """Open a data set in another process, and see that it is still the same one."""
    source = kind(path)
    if source.fingerprint != fingerprint:
        raise CatalogError(f"{path}: was replaced by another data set; start again")
    return source


def _close_all(files: dict[int, int]) -> None:
    while files:
        os.close(files.popitem()[1])
