"""A data set as loaders see it, however it is stored, and one sample of it."""

from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


class Source(Protocol):
    """Random access to encoded samples by id; safe to use from many threads.

    Attributes:
        path: Where the data set lies.
        kind: ``"folder"``, ``"tar"`` or ``"lmdb"``.
        fingerprint: Hash of the content; two data sets with the same one give the same order.
        classes: Names in the order of the labels.
        has_checksums: Whether ``rows`` holds the CRC-32C of each sample.
        field_names: Extensions of the further fields that samples may have.
    """

    path: Path
    kind: str
    fingerprint: str
    classes: tuple[str, ...]
    has_checksums: bool
    field_names: tuple[str, ...]

    def __len__(self) -> int:
        """Number of samples."""

    def rows(self, ids: Ids) -> npt.NDArray[Any]:
        """(N,) structured array with label, width and height; sizes are 0 where unknown."""

    def labels(self) -> npt.NDArray[np.int32]:
        """Labels of all samples, (n,)."""

    def keys(self, ids: Ids) -> list[str]:
        """Names of N samples."""

    def read(self, sample: int) -> bytes:
        """Encoded image of one sample, verified where the data set has checksums."""

    def encoded(self, core: ModuleType, ids: Ids, rows: npt.NDArray[Any]) -> Any:
        """The encoded images of N samples as a ``ByteSource`` of the native core."""

    def read_fields(self, sample: int, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Further fields that one sample has, by extension: all, or those of ``names``."""

    def close(self) -> None:
        """Release files; a later read opens them again."""


class Sample(NamedTuple):
    """One image with its label, as the readers yield it.

    A named tuple, so that ``torch.utils.data.default_collate`` batches it as it is.

    Attributes:
        key: Name of the sample within its data set, for example ``"cats/0001"``.
        label: Index into the data set's ``classes``; -1 where the source has none.
        image: Encoded bytes, or an RGB array of shape (H, W, 3), uint8, or whatever a transform
            left here.
        fields: Further fields by extension, for example ``{"json": b"..."}``; empty for most.
        id: Row in the catalog, from 0 to the number of samples - 1; the same in every epoch.
    """

    key: str
    label: int
    image: Any
    fields: Mapping[str, bytes]
    id: int
