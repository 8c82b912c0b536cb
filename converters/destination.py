"""What already lies where a pack is to go, and whether it may be replaced."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from fastdata import manifest
from fastdata.converters.tar_writer import TarWriter
from fastdata.converters.writer import Writer
from fastdata.errors import CorruptError, DestinationError, NotADatasetError, ShardError
from fastdata.files import fsync_folder, write_atomically

LOCK_NAME = ".pack.lock"

_OURS = re.compile(
    r"(shard-\d{6,}\.(tar|idx)|catalog\.fdc|dataset\.json|\.pack\.json)(\.tmp)?|\.pack\.lock"
)


class Destination(Protocol):
    """One of the two kinds of packed data sets, before it is written."""

    kind: str
    path: Path
    lock_path: Path

    def create(self) -> bool:
        """Make the folder that holds the lock; return whether there was none."""

    def manifest(self) -> manifest.Manifest | None:
        """Read the manifest of a whole data set; None where there is nothing yet.

        Raises:
            CorruptError: A data set is there and damaged.
            DestinationError: Something else is there.
        """

    def prepare(self, pack: Mapping[str, object], *, overwrite: bool) -> None:
        """Clear what an unfinished pack left, or an old data set.

        Args:
            pack: Source and options, to know an unfinished pack by.
            overwrite: Whether a data set or another pack's work may go.

        Raises:
            DestinationError: Something is there that must stay.
        """

    def writer(self, shard_size: int) -> Writer:
        """Begin to write."""

    def give_up(self) -> None:
        """Remove what a pack that failed left, unless whole shards are worth keeping."""

    def finish(self) -> None:
        """Remove what only an unfinished pack needs."""

    def bytes(self) -> int:
        """Size of all files of the data set."""


def destination(path: Path) -> Destination:
    """Tell the kind by the name: one LMDB file if it ends in .lmdb, else a folder of shards."""
    return LmdbDestination(path) if path.name.endswith(".lmdb") else TarDestination(path)


class TarDestination:
    """A folder of tar shards."""

    kind = "tar"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path / LOCK_NAME
        self._mark = path / manifest.MARK_NAME

    def create(self) -> bool:
        """Make the folder."""
        if self.path.is_dir():
            return False
        if self.path.exists():
            raise self._is_file()
        self.path.mkdir(parents=True)
        return True

    def manifest(self) -> manifest.Manifest | None:
        """Read dataset.json and compare the sizes of the files that it names."""
        if not self.path.exists():
            return None
        if not self.path.is_dir():
            raise self._is_file()
        self._refuse_others()
        if not (self.path / manifest.FILE_NAME).exists():
            return None
        found = manifest.load(self.path)
        for shard in found.shards:
            _check_size(self.path / shard.name, shard.bytes)
        _check_size(self.path / manifest.CATALOG_NAME, found.catalog.bytes)
        return found

    def prepare(self, pack: Mapping[str, object], *, overwrite: bool) -> None:
        """Mark the folder as ours and unfinished, then empty it."""
        self._refuse_others()
        mark = (json.dumps(pack, indent=2, sort_keys=True) + "\n").encode("ascii")
        whole = (self.path / manifest.FILE_NAME).exists()
        if not overwrite and not whole and self._mark.exists() and self._mark.read_bytes() != mark:
            raise DestinationError(
                f"{self.path}: holds an unfinished pack of another source or with other options; "
                "use --overwrite to remove it"
            )
        # The mark comes first and the old manifest goes before any shard, so that a folder that
        # is half overwritten is neither taken for whole nor for somebody else's.
        write_atomically(self._mark, mark)
        (self.path / manifest.FILE_NAME).unlink(missing_ok=True)
        fsync_folder(self.path)
        for name in os.listdir(self.path):
            if name not in (manifest.MARK_NAME, LOCK_NAME):
                (self.path / name).unlink()

    def writer(self, shard_size: int) -> Writer:
        """Begin to write."""
        return TarWriter(self.path, shard_size)

    def give_up(self) -> None:
        """Remove everything, unless whole shards are worth keeping."""
        names = set(os.listdir(self.path)) - {LOCK_NAME}
        if not any(name.endswith(".tar") for name in names):
            for name in names:
                (self.path / name).unlink()

    def finish(self) -> None:
        """Remove the mark of an unfinished pack."""
        self._mark.unlink(missing_ok=True)
        fsync_folder(self.path)

    def bytes(self) -> int:
        """Size of all files together."""
        with os.scandir(self.path) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.name != LOCK_NAME)

    def _is_file(self) -> DestinationError:
        return DestinationError(
            f"{self.path}: a file; give a folder for shards, or a name that ends in .lmdb"
        )

    def _refuse_others(self) -> None:
        """Refuse a folder with anything in it that no pack of ours wrote."""
        names = os.listdir(self.path)
        for name in sorted(names):
            if not _OURS.fullmatch(name):
                raise DestinationError(
                    f"{self.path}: holds {name!r}, which is no part of a data set; choose another "
                    "folder, or empty this one"
                )
        self._refuse_other_manifest()
        signs = {manifest.FILE_NAME, manifest.MARK_NAME}
        if not signs.intersection(names) and any(name.endswith(".tar") for name in names):
            raise DestinationError(
                f"{self.path}: holds shards that fastdata did not write (no {manifest.FILE_NAME}); "
                "choose another folder"
            )

    def _refuse_other_manifest(self) -> None:
        path = self.path / manifest.FILE_NAME
        if path.exists() and manifest.FORMAT.encode() not in path.read_bytes():
            raise DestinationError(
                f"{path}: not a manifest of fastdata; choose another folder, or remove this file"
            )


def _check_size(path: Path, stated: int) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise ShardError(f"{path}: missing; pack again with --overwrite") from None
    if found != stated:
        raise ShardError(
            f"{path}: {found} bytes, the manifest states {stated}; pack again with --overwrite"
        )


class LmdbDestination:
    """One LMDB file."""

    kind = "lmdb"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path.with_name(path.name + ".lock")

    def create(self) -> bool:
        """Make the folder that will hold the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return False

    def manifest(self) -> manifest.Manifest | None:
        """Read the manifest within the file."""
        # Imported here, so that packing shards needs no LMDB.
        from fastdata import lmdb_file

        if not self.path.exists():
            return None
        try:
            return lmdb_file.read_manifest(lmdb_file.open_file(self.path))
        except NotADatasetError as error:
            raise DestinationError(f"{error}; choose another name") from error

    def prepare(
        self,
        pack: Mapping[str, object],  # noqa: ARG002 (an LMDB is not published piece by piece)
        *,
        overwrite: bool,
    ) -> None:
        """Clear nothing: the old file stays until the new one takes its name."""
        if overwrite:
            with suppress(CorruptError):  # a damaged data set may go, anything else may not
                self.manifest()

    def writer(self, shard_size: int) -> Writer:
        """Begin to write."""
        from fastdata.converters.lmdb_writer import LmdbWriter

        return LmdbWriter(self.path, shard_size)

    def give_up(self) -> None:
        """Nothing is left over."""

    def finish(self) -> None:
        """Nothing is left over."""

    def bytes(self) -> int:
        """Size of all files together."""
        return self.path.stat().st_size
