"""One LMDB file as a destination: what is there, and what of it a pack may remove."""

import os
from contextlib import suppress
from pathlib import Path

from fastdata.converters.destination import check_size
from fastdata.converters.journal import Journal, Noted
from fastdata.converters.lmdb.writer import LmdbWriter, whole_groups
from fastdata.dataset.lmdb.file import open_file, read_manifest
from fastdata.dataset.manifest import REPORT_NAME, Manifest, Shard
from fastdata.errors import CorruptError, DestinationError, NotADatasetError
from fastdata.system.files import fsync_folder, temporary
from fastdata.system.untrusted import JsonFields, read_regular


class LmdbDestination:
    """One LMDB file, with the list of what was left out beside it."""

    kind = "lmdb"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path.with_name(f"{path.name}.lock")
        self.report_path = path.with_name(f"{path.name}.{REPORT_NAME}")
        self.journal = Journal(path.with_name(f"{path.name}.journal"))
        self._unfinished = [self.journal.path, *map(temporary, (path, self.report_path))]
        self._unfinished.append(temporary(self.journal.path))

    def create(self) -> bool:
        """Make the folder that will hold the file.

        Raises:
            DestinationError: The file is a link, which may lead anywhere.
        """
        if self.path.is_symlink():
            raise DestinationError(f"{self.path}: a symbolic link; give its target, or remove it")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return False

    def manifest(self) -> Manifest | None:
        """Read the manifest within the file."""
        if not self.path.exists():
            return None
        try:
            found = read_manifest(open_file(self.path))
        except NotADatasetError as error:
            raise DestinationError(f"{error}; choose another name") from error
        if found.report is not None:
            check_size(self.report_path, found.report.bytes)
        return found

    def is_clean(self) -> bool:
        """Whether there is neither a journal, nor a lock, nor a temporary file."""
        return not any(map(os.path.lexists, (self.lock_path, *self._unfinished)))

    def check(self, mark: str, *, overwrite: bool) -> None:
        """Refuse what is not ours, and without ``overwrite`` another pack's work."""
        if overwrite:
            with suppress(CorruptError):  # only a data set may be replaced, damaged or not
                self.manifest()
        else:
            self.journal.refuse_other(mark, self.path)
            self._refuse_others()

    def prepare(self, mark: str, *, overwrite: bool) -> list[Noted]:
        """Clear unfinished work; the old file stays until the new one replaces it."""
        if overwrite or self.journal.mark() is None:
            self.journal.begin(mark)
        noted = self.journal.read()
        # The journal is synced after the file, but a copied or restored file may be shorter.
        count = whole_groups(self.path, tuple(group for group, _ in noted))
        self.journal.keep(count)
        return noted[:count]

    def writer(self, shard_size: int, done: tuple[Shard, ...]) -> LmdbWriter:
        """Begin to write."""
        return LmdbWriter(self.path, shard_size, self.journal, done)

    def give_up(self) -> None:
        """Remove everything, unless finished groups are worth keeping."""
        if self.path.exists() or not self.journal.read():
            self._clear()

    def finish(self, found: Manifest) -> None:
        """Remove the journal, temporary files, and the report of an older data set."""
        if found.report is None:
            self.report_path.unlink(missing_ok=True)
        self._clear()

    def total_bytes(self) -> int:
        """Size of all files together."""
        with suppress(FileNotFoundError):
            return self.path.stat().st_size + self.report_path.stat().st_size
        return self.path.stat().st_size

    def _refuse_others(self) -> None:
        """Refuse a report that fastdata did not write."""
        if not os.path.lexists(self.report_path):
            return
        try:
            for line in read_regular(self.report_path).splitlines():
                entry = JsonFields.read(line, str(self.report_path), DestinationError, "")
                entry.take("name", str), entry.take("reason", str)
                entry.end()
        except (OSError, DestinationError):
            raise DestinationError(
                f"{self.report_path}: not written by fastdata; move it, or use --overwrite to "
                "replace it"
            ) from None

    def _clear(self) -> None:
        for path in reversed(self._unfinished):
            path.unlink(missing_ok=True)
        fsync_folder(self.path.parent)
