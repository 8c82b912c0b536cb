"""The files that ``index`` writes beside tars: all of them are written before any is replaced."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from fastdata.converters.tar.packed_folder import has_catalog, has_manifest
from fastdata.dataset.manifest import CATALOG_NAME, FILE_NAME, REPORT_NAME
from fastdata.errors import DestinationError
from fastdata.system.files import TMP_SUFFIX, Folder, write_temporary
from fastdata.system.untrusted import read_regular


class IndexFiles:
    """New files of a folder under temporary names, until ``publish``; used as a context.

    Args:
        path: The folder.
        overwrite: Whether files that others wrote may be replaced.
    """

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path = path
        self._overwrite = overwrite
        self._ours = has_manifest(path) or has_catalog(path)
        self._staged: list[str] = []

    def __enter__(self) -> Self:
        """Open the folder.

        Raises:
            DestinationError: It holds a manifest, a catalog or a report of another program.
        """
        for name, ours in (
            (FILE_NAME, has_manifest(self._path)),
            (CATALOG_NAME, self._ours),
            (REPORT_NAME, self._ours),
        ):
            self._refuse(name, ours=ours)
        self._folder = Folder(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was not published."""
        try:
            for name in self._staged:
                self._folder.remove(name + TMP_SUFFIX)
        finally:
            self._folder.close()

    def write_index(self, name: str, lines: bytes) -> None:
        """Write the index file of a tar, unless it is there already.

        Raises:
            DestinationError: Another program's is there, with other content.
        """
        with suppress(OSError):
            if read_regular(self._path / name) == lines:
                return
        self._refuse(name, ours=self._ours)
        self.write(name, lines)

    def write(self, name: str, data: bytes | Callable[[BinaryIO], object]) -> None:
        """Write a file under its temporary name."""
        write_temporary(self._folder, name, data)
        self._staged.append(name)

    def publish(self) -> None:
        """Replace what was there; without the manifest, which comes last, nothing counts."""
        self._folder.remove(FILE_NAME)
        if self._ours and REPORT_NAME not in self._staged:
            self._folder.remove(REPORT_NAME)
        self._folder.sync()
        while self._staged:
            if self._staged[0] == FILE_NAME:
                self._folder.sync()
            self._folder.rename(self._staged[0] + TMP_SUFFIX, self._staged[0])
            del self._staged[0]
        self._folder.sync()

    def _refuse(self, name: str, *, ours: bool) -> None:
        path = self._path / name
        if not os.path.lexists(path):
            return
        if stat.S_ISDIR(path.lstat().st_mode):
            raise DestinationError(f"{path}: a folder, where index writes a file; move it away")
        if not ours and not self._overwrite:
            raise DestinationError(
                f"{path}: not written by fastdata; move it away, or use --overwrite to replace it"
            )
