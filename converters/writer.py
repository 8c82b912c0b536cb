"""What the two kinds of packed data sets have in common while they are written."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from fastdata.converters.sink import Sink
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.manifest import Shard, Stored

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

    A whole shard stays, whatever happens: it goes into the journal together with a note, which the
    writer does not look into, and a later writer continues behind it. Bytes are hashed, written
    and synced by a thread of the writer's own, so an OSError may come out of any later method.
    After an error, and only then, call ``abort``.

    Attributes:
        sink: That thread.
    """

    sink: Sink

    def room(self, item: Item) -> bool:
        """Whether the open shard takes this sample; true where none is open."""

    def append(self, item: Item) -> Placed:
        """Write the next sample into the open shard; where there is none, open the next one."""

    def end_shard(self, note: bytes) -> None:
        """End the open shard, sync it, put it and the note into the journal, give it its name.

        Where no shard is open, nothing happens.
        """

    def finish(self) -> tuple[Shard, ...]:
        """Wait until every shard is whole, after ``end_shard``; return all, earlier ones too."""

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the catalog, after ``finish``."""

    def publish(self, manifest: bytes) -> None:
        """Write the manifest, which makes the data set whole."""

    def abort(self) -> None:
        """Remove whatever is unfinished; whole shards and the journal stay."""
