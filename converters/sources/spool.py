"""A copy, in an unnamed file, of images that can be read only once, from front to back."""

import os
import tempfile
import weakref
from pathlib import Path

from fastdata.converters.problems import read_range
from fastdata.converters.sources.listing import CHANGED, Unreadable, failure
from fastdata.converters.sources.records import Extent
from fastdata.errors import DestinationError
from fastdata.system.checksum import crc32c
from fastdata.system.files import above_standard, write_all


class Spool:
    """Bytes in a temporary file that disappears with the process, however that ends.

    Args:
        folder: Where to put it; it, or the folders above it, need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        while not self._folder.is_dir():
            self._folder = self._folder.parent
        try:
            # A duplicate above 2, where the C library's messages cannot go into it.
            with tempfile.TemporaryFile(dir=self._folder) as file:
                self._fd = above_standard(os.dup(file.fileno()))
        except OSError as error:
            raise self._full(error) from error
        weakref.finalize(self, os.close, self._fd)
        self._size = 0

    def put(self, data: bytes) -> Extent:
        """Append bytes.

        Raises:
            DestinationError: They cannot be written.
        """
        extent = Extent(self._size, len(data), crc32c(data))
        try:
            write_all(self._fd, data)
        except OSError as error:
            raise self._full(error) from error
        self._size += len(data)
        return extent

    def fetch(self, extent: Extent) -> bytes | Unreadable:
        """See :class:`fastdata.converters.sources.records.Store`."""
        try:
            data = read_range(self._fd, extent.offset, extent.size)
        except OSError as error:
            return failure(str(self._folder), error)
        return data if len(data) == extent.size else Unreadable(CHANGED)

    def _full(self, error: OSError) -> DestinationError:
        return DestinationError(
            f"{self._folder}: {error.strerror or error}; a source that can be read only once "
            "needs room here for a copy of its images while it is packed"
        )
