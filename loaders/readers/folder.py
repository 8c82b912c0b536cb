"""Random access to the images of a folder as it is, without packing."""

import os
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Ids
from fastdata.converters.sources.open import scan
from fastdata.dataset.catalog.format import ROW
from fastdata.errors import NotADatasetError, SampleError, SourceError

EXTENSIONS = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "pgm", "ppm"})
"""What ImageFolder lists, and GIF. PGM and PPM are listed for the error that says to pack them."""


class FolderSource:
    """Images of a folder, by id in the order of their paths; a ``fastdata.batch.source.Source``.

    Files are known by their extension; width and height are known only once a file is read. There
    are no checksums: a folder has none.

    Attributes:
        path: The folder.
        kind: ``"folder"``.
        classes: Names of the class folders in the order of the labels; empty for a flat folder.
        fingerprint: Hash of the relative paths, sizes and classes.
        bytes: Size of all images.
    """

    kind = "folder"
    has_checksums = False
    field_names: tuple[str, ...] = ()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """List the folder.

        Raises:
            NotADatasetError: It is no folder, or holds no image.
        """
        self.path = Path(os.path.abspath(path))
        try:
            self._listing = scan(self.path, EXTENSIONS)
        except SourceError as error:
            raise NotADatasetError(str(error)) from error
        self.classes = self._listing.classes
        self.fingerprint = self._listing.fingerprint
        self.bytes = int(self._listing.sizes.sum())

    def __len__(self) -> int:
        """Number of images."""
        return len(self._listing)

    def rows(self, ids: Ids) -> npt.NDArray[Any]:
        """Labels and lengths of N images as catalog rows, (N,); width and height are 0: unknown."""
        rows = np.zeros(len(ids), ROW)
        rows["label"] = self._listing.labels[ids]
        rows["length"] = self._listing.sizes[ids]
        return rows

    def labels(self) -> npt.NDArray[np.int32]:
        """Labels of all images, (n,)."""
        return self._listing.labels

    def keys(self, ids: Ids) -> list[str]:
        """Keys of N images: their paths without extension, as a pack would name them."""
        return [os.fsdecode(self._listing.key(number)) for number in ids.tolist()]

    def read(self, sample: int) -> bytes:
        """Content of one file.

        Raises:
            SampleError: It cannot be read any more.
        """
        path = self._listing.path(sample)
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except OSError as error:
            raise SampleError(f"{os.fsdecode(path)}: cannot read: {error.strerror}") from error

    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:  # noqa: ARG002
        """The files of N images as a ``ByteSource`` of the native core."""
        return core.WholeFiles([self._listing.path(number) for number in ids.tolist()])

    def read_fields(self, sample: int, names: Collection[str] | None = None) -> dict[str, bytes]:  # noqa: ARG002
        """A folder has no further fields."""
        return {}

    def close(self) -> None:
        """No file is kept open."""
