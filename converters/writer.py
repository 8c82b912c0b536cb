"""What the two kinds of packed data sets have in common while they are written."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from fastdata.catalog_builder import CatalogBuilder
from fastdata.manifest import Shard, Stored

Fields = Mapping[str, bytes]


class Item(NamedTuple):
    """A sample to be written.

    Attributes:
        key: Its key.
        extension: Of its image, without the dot.
        image: Encoded bytes.
        label: Index of its class, or -1.
        fields: Further fields by extension.
    """

    key: bytes
    extension: str
    image: bytes
    label: int
    fields: Fields


class Placed(NamedTuple):
    """Where a sample was written.

    Attributes:
        shard: Number of its shard or group.
        offset: Of its image, within the shard or the LMDB value.
        fields: (offset, length, CRC32C) of each further field.
    """

    shard: int
    offset: int
    fields: dict[str, tuple[int, int, int]]


class Writer(Protocol):
    """Takes samples in the order of their ids; nothing counts until ``publish``.

    Every method may raise OSError. After an error, and only then, call ``abort``.
    """

    def append(self, item: Item) -> Placed:
        """Write the next sample."""

    def finish(self) -> tuple[Shard, ...]:
        """Write what is left of the last shard; no sample may follow."""

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the catalog, after ``finish``."""

    def publish(self, manifest: bytes) -> None:
        """Write the manifest, which makes the data set whole."""

    def abort(self) -> None:
        """Remove whatever is unfinished; whole shards stay."""
