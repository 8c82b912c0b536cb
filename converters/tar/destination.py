"""A folder of tar shards as a destination: what is in it, and what of that may go."""

import os
import re
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from fastdata.converters.journal import Journal
from fastdata.converters.place import Noted, check_size, refuse_other_pack
from fastdata.converters.tar.packed_folder import has_manifest
from fastdata.converters.tar.writer import TarWriter, index_name
from fastdata.converters.writer import Writer
from fastdata.dataset import manifest
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    LOCK_NAME,
    MARK_NAME,
    REPORT_NAME,
    Manifest,
    Shard,
)
from fastdata.errors import DestinationError
from fastdata.system.files import TMP_SUFFIX, fsync_folder, own_size

_NAMES = "|".join(map(re.escape, (CATALOG_NAME, FILE_NAME, MARK_NAME, REPORT_NAME)))
_OURS = re.compile(rf"(shard-\d{{6,}}\.(tar|idx)|{_NAMES})(\.tmp)?|{re.escape(LOCK_NAME)}")


class TarDestination:
    """A folder of tar shards."""

    kind = "tar"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path / LOCK_NAME
        self.report_path = path / REPORT_NAME
        self.journal = Journal(path / MARK_NAME)

    def create(self) -> bool:
        """Make the folder."""
        if self.path.is_dir():
            return False
        if self.path.exists():
            raise self._is_file()
        self.path.mkdir(parents=True)
        return True

    def manifest(self) -> Manifest | None:
        """Read dataset.json and compare the sizes of the files that it names."""
        if not self.path.exists():
            return None
        if not self.path.is_dir():
            raise self._is_file()
        self._refuse_others()
        if not os.path.lexists(self.path / FILE_NAME):
            return None
        found = manifest.load(self.path)
        for shard in found.shards:
            check_size(self.path / shard.name, shard.bytes)
        check_size(self.path / CATALOG_NAME, found.catalog.bytes)
        if found.report is not None:
            check_size(self.report_path, found.report.bytes)
        return found

    def is_clean(self) -> bool:
        """Whether there is neither a journal, nor a lock, nor a temporary file."""
        left = (
            name in (MARK_NAME, LOCK_NAME) or name.endswith(TMP_SUFFIX) for name in self._names()
        )
        return not any(left)

    def check(self, mark: str, *, overwrite: bool) -> None:
        """Refuse others' files, and without ``overwrite`` another pack's shards."""
        self._refuse_others()
        if not overwrite:
            refuse_other_pack(self.path, self.journal, mark)

    def prepare(self, mark: str, *, overwrite: bool) -> list[Noted]:
        """Mark the folder as unfinished, then clear it."""
        # The mark comes first and the old manifest goes before any shard, so that a folder that
        # is half overwritten is neither taken for whole nor for somebody else's.
        if overwrite or self.journal.mark() is None:
            self.journal.begin(mark)
        (self.path / FILE_NAME).unlink(missing_ok=True)
        fsync_folder(self.path)
        whole = list(takewhile(self._is_there, self.journal.read()))
        self.journal.keep(len(whole))
        keep = {MARK_NAME, LOCK_NAME}
        for shard, _ in whole:
            keep |= {shard.name, index_name(shard.name)}
        self._remove(set(self._names()) - keep)
        return whole

    def writer(self, shard_size: int, done: tuple[Shard, ...]) -> Writer:
        """Begin to write."""
        return TarWriter(self.path, shard_size, self.journal, done)

    def give_up(self) -> None:
        """Remove everything, unless whole shards are worth keeping."""
        if (self.path / FILE_NAME).exists():  # an old data set, of which nothing is gone yet
            self.journal.remove()
        elif not self.journal.read():
            self._remove(set(self._names()) - {LOCK_NAME})

    def finish(self, found: Manifest) -> None:  # noqa: ARG002 (everything else went before it came)
        """Remove the journal and temporary files."""
        self._remove({name for name in self._names() if name.endswith(TMP_SUFFIX)})
        self.journal.remove()

    def bytes(self) -> int:
        """Size of all files together."""
        total = 0
        for name in set(self._names()) - {LOCK_NAME}:
            with suppress(OSError):  # a link that leads nowhere, in the place of an index
                total += (self.path / name).stat().st_size
        return total

    def _names(self) -> list[str]:
        return os.listdir(self.path)

    def _remove(self, names: set[str]) -> None:
        # The journal goes last: what is there without it is not known to be ours.
        for name in sorted(names, key=lambda name: name == MARK_NAME):
            (self.path / name).unlink()

    def _is_there(self, entry: Noted) -> bool:
        shard = entry[0]
        size = own_size(self.path / shard.name)
        return size == shard.bytes and own_size(self.path / index_name(shard.name)) is not None

    def _is_file(self) -> DestinationError:
        return DestinationError(
            f"{self.path}: a file; give a folder for shards, or a name that ends in .lmdb"
        )

    def _refuse_others(self) -> None:
        """Refuse a folder with anything in it that no pack of ours wrote."""
        names = self._names()
        for name in sorted(names):
            if not _OURS.fullmatch(name):
                raise DestinationError(
                    f"{self.path}: holds {name!r}, which is no part of a data set; choose another "
                    "folder, or empty this one"
                )
        self._refuse_other_manifest()
        # A pack writes nothing before its journal, which goes after the manifest has come.
        unknown = {name for name in names if name != LOCK_NAME and not name.endswith(TMP_SUFFIX)}
        if unknown and not {FILE_NAME, MARK_NAME} & unknown:
            raise DestinationError(
                f"{self.path}: holds {min(unknown)!r}, which fastdata did not write (no "
                f"{FILE_NAME}); choose another folder, or empty this one"
            )

    def _refuse_other_manifest(self) -> None:
        path = self.path / FILE_NAME
        if os.path.lexists(path) and not has_manifest(self.path):
            raise DestinationError(
                f"{path}: not a manifest of fastdata; choose another folder, or remove this file"
            )
