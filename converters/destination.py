"""What the two kinds of destinations, a folder of tar shards and an LMDB file, have in common."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from fastdata.converters.journal import Journal, Noted
from fastdata.converters.stages import Sink
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.manifest import Manifest, Shard, Stored
from fastdata.errors import ShardError


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
    fields: Mapping[str, bytes]


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

    A finished shard stays, whatever happens: it goes into the journal together with a note, which
    the writer does not look into, and a later writer continues after it. Bytes are hashed, written
    and synced by a thread of the writer's own, so an OSError may come out of any later method.
    After an error, and only then, call ``abort``.

    Attributes:
        sink: That thread.
    """

    sink: Sink

    def append(self, item: Item, note: Callable[[], bytes] | None = None) -> Placed:
        """Write the next sample into the open shard, or into a new one if none is open.

        Args:
            item: The sample.
            note: Gives the note for a shard that is ended because the sample does not fit; without
                it, none is ended.
        """

    def end_shard(self, note: bytes) -> None:
        """End the open shard, sync it, put it and the note into the journal, give it its name.

        Does nothing if no shard is open.
        """

    def finish(self) -> tuple[Shard, ...]:
        """Wait until every shard is finished, after ``end_shard``; return all, earlier ones too."""

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the catalog, after ``finish``."""

    def publish(self, manifest: bytes) -> None:
        """Write the manifest, which completes the data set."""

    def abort(self) -> None:
        """Remove whatever is unfinished; finished shards and the journal stay."""


class Destination(Protocol):
    """One of the two kinds of packed data sets, before it is written.

    Attributes:
        kind: ``"tar"`` or ``"lmdb"``.
        path: The folder, or the file.
        lock_path: The file of its lock.
        report_path: The list of what was left out.
        journal: Of the pack that is running, or was interrupted.
    """

    kind: str
    path: Path
    lock_path: Path
    report_path: Path
    journal: Journal

    def create(self) -> bool:
        """Make the folder that holds the lock; return whether it is new."""

    def manifest(self) -> Manifest | None:
        """Read the manifest of a finished data set; None if there is none.

        Raises:
            CorruptError: A data set is there and damaged.
            DestinationError: Something else is there.
        """

    def is_clean(self) -> bool:
        """Whether no interrupted pack has left anything."""

    def check(self, mark: str, *, overwrite: bool) -> None:
        """Refuse if something must stay; change nothing.

        Args:
            mark: Source and options, by which an unfinished pack is known.
            overwrite: Whether a data set or another pack's work may be removed.

        Raises:
            DestinationError: Something is there that must stay.
        """

    def prepare(self, mark: str, *, overwrite: bool) -> list[Noted]:
        """Clear all but the finished shards of an unfinished pack, or with ``overwrite`` those too.

        Returns:
            The shards that are left.
        """

    def writer(self, shard_size: int, done: tuple[Shard, ...]) -> Writer:
        """Begin to write, or continue after finished shards."""

    def give_up(self) -> None:
        """Remove what a failed pack left, unless finished shards are worth keeping."""

    def finish(self, found: Manifest) -> None:
        """Remove what does not belong to the finished data set with this manifest."""

    def total_bytes(self) -> int:
        """Size of all files of the data set."""


def check_size(path: Path, stated: int) -> None:
    """Compare the size of a file with the one in the manifest.

    Raises:
        ShardError: It is missing, or of another size.
    """
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise ShardError(f"{path}: missing; pack again with --overwrite") from None
    if found != stated:
        raise ShardError(
            f"{path}: {found} bytes, the manifest states {stated}; pack again with --overwrite"
        )
