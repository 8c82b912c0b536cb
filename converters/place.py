"""What both kinds of destinations have in common."""

import os
from pathlib import Path
from typing import Protocol

from fastdata.converters.journal import Journal
from fastdata.converters.writer import Writer
from fastdata.dataset.manifest import Manifest, Shard
from fastdata.errors import DestinationError, ShardError

Noted = tuple[Shard, bytes]
"""A shard that is whole, and its note."""


class Destination(Protocol):
    """One of the two kinds of packed data sets, before it is written.

    Attributes:
        kind: ``"tar"`` or ``"lmdb"``.
        path: The folder, or the file.
        lock_path: The file of its lock.
        report_path: The list of what was left out.
        journal: Of the pack that is going on, or was interrupted.
    """

    kind: str
    path: Path
    lock_path: Path
    report_path: Path
    journal: Journal

    def create(self) -> bool:
        """Make the folder that holds the lock; return whether there was none."""

    def manifest(self) -> Manifest | None:
        """Read the manifest of a whole data set; None where there is nothing yet.

        Raises:
            CorruptError: A data set is there and damaged.
            DestinationError: Something else is there.
        """

    def is_clean(self) -> bool:
        """Whether no pack that was interrupted has left anything."""

    def check(self, mark: str, *, overwrite: bool) -> None:
        """Refuse what must stay; touch nothing.

        Args:
            mark: Source and options, to know an unfinished pack by.
            overwrite: Whether a data set or another pack's work may go.

        Raises:
            DestinationError: Something is there that must stay.
        """

    def prepare(self, mark: str, *, overwrite: bool) -> list[Noted]:
        """Clear all but the whole shards of an unfinished pack, or with ``overwrite`` those too.

        Returns:
            The shards that are left.
        """

    def writer(self, shard_size: int, done: tuple[Shard, ...]) -> Writer:
        """Begin to write, or go on behind shards that are whole."""

    def give_up(self) -> None:
        """Remove what a pack that failed left, unless whole shards are worth keeping."""

    def finish(self, found: Manifest) -> None:
        """Remove what no whole data set with this manifest has."""

    def bytes(self) -> int:
        """Size of all files of the data set."""


def refuse_other_pack(path: Path, journal: Journal, mark: str) -> None:
    """Refuse to continue, or to remove, the work of a pack of something else.

    Raises:
        DestinationError: There is a journal with another mark.
    """
    if os.path.lexists(journal.path) and journal.mark() != mark:
        raise DestinationError(
            f"{path}: holds an unfinished pack of another source or with other options; "
            "use --overwrite to remove it"
        )


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
