"""The list of samples that were replaced: in a file, or in memory where none can be written."""

import contextlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from fastdata.errors import DestinationError, OptionError
from fastdata.system.files import open_own, write_all

DEFAULT = "quarantine.jsonl"
"""Name of the file in the working directory, where the user names none."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class Quarantine:
    """A line of JSON for each replaced sample.

    Attributes:
        path: The file; of several ranks each has its own, for example ``quarantine.rank3.jsonl``.
        entries: All that was added by this rank.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, rank: int, world_size: int) -> None:
        """Find out whether the file can be written; it does not appear before there is a line.

        Args:
            path: The file; None for ``quarantine.jsonl`` in the working directory, which may be
                read-only: then there is a warning, and the list is in memory.
            rank: This rank.
            world_size: Number of ranks.

        Raises:
            OptionError: The file that the user named cannot be written.
        """
        self.entries: list[Mapping[str, object]] = []
        named = Path(DEFAULT if path is None else path).absolute()
        # even appending is not safe between machines that share a folder
        self.path = named.with_stem(f"{named.stem}.rank{rank}") if world_size > 1 else named
        self._writing = True
        try:
            self._try()
        except (OSError, DestinationError) as error:
            if path is not None:
                raise OptionError(
                    f"quarantine: {self.path} cannot be written ({_reason(error)}); name another "
                    "file with quarantine="
                ) from error
            self._give_up(error)

    def __str__(self) -> str:
        """Where the list is."""
        return str(self.path) if self._writing else "loader.quarantined"

    def add(self, entry: Mapping[str, object]) -> None:
        """Add a sample; where the file cannot be written any more, to memory alone."""
        self.entries.append(entry)
        if not self._writing:
            return
        try:
            fd = open_own(self.path, _APPEND)
            try:
                write_all(fd, (json.dumps(entry) + "\n").encode("ascii"))
            finally:
                os.close(fd)
        except (OSError, DestinationError) as error:
            self._give_up(error)

    def _try(self) -> None:
        """Open the file, and leave the folder as it was."""
        there = self.path.exists()
        os.close(open_own(self.path, _APPEND))
        if not there:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _give_up(self, error: OSError | DestinationError) -> None:
        self._writing = False
        warnings.warn(
            f"{self.path} cannot be written ({_reason(error)}): replaced samples are listed in "
            "loader.quarantined alone; quarantine= names another file",
            RuntimeWarning,
            stacklevel=4,
        )


def _reason(error: OSError | DestinationError) -> str:
    return str((isinstance(error, OSError) and error.strerror) or error)
