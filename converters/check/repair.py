"""Puts a data set right as far as what is left of it allows: ``fastdata verify PATH --repair``."""

import os
from dataclasses import dataclass
from pathlib import Path

from fastdata.converters.check.repair_lmdb import repair_lmdb
from fastdata.converters.check.repair_tar import repair_folder
from fastdata.converters.check.verify import verify
from fastdata.converters.problems import Problem, Progress
from fastdata.dataset.manifest import LOCK_NAME
from fastdata.errors import DestinationError, NotADatasetError
from fastdata.system.files import Lock


@dataclass(frozen=True)
class RepairReport:
    """What ``repair`` did.

    Attributes:
        fixed: What was put right, in words.
        remaining: What is still wrong.
    """

    fixed: tuple[str, ...]
    remaining: tuple[Problem, ...]


def repair(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> RepairReport:
    """Write anew what is damaged, from what is not.

    Tar headers, index files and catalog follow from the rest; exchanged shards are put in their
    places; damaged samples are taken from ``source``. Every file is replaced as a whole, and only
    if it then is to the bit what was packed. What cannot be repaired stays as it is.

    Args:
        path: A folder of shards, or an LMDB file.
        source: The image folder that was packed.
        progress: Called on this thread while the data set is verified, before and after.

    Raises:
        NotADatasetError: The path never was a packed data set, or ``source`` is no folder.
        DestinationError: The data set cannot be written.
        BusyError: Another process writes to it.
        SourceError: ``source`` cannot be read.
    """
    where = Path(os.path.realpath(path))
    root = None if source is None else Path(source)
    if root is not None and not root.is_dir():
        raise NotADatasetError(f"{root}: no folder; give the one that was packed")
    wrong = {problem.file for problem in verify(where, progress).problems}
    if not wrong:
        return RepairReport((), ())
    is_folder = where.is_dir()
    lock = where / LOCK_NAME if is_folder else where.with_name(f"{where.name}.lock")
    work = repair_folder if is_folder else repair_lmdb
    try:
        with Lock(lock, str(where)):
            fixed = work(where, root, wrong)
    except OSError as error:
        raise DestinationError(f"{error.filename or where}: {error.strerror or error}") from error
    return RepairReport(tuple(fixed), verify(where, progress).problems)
