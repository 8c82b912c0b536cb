"""Whether a packed data set is what was packed, to the bit: ``fastdata verify PATH``."""

import os
import time
from pathlib import Path

from fastdata.converters.check.verify_lmdb import verify_lmdb
from fastdata.converters.check.verify_tar import verify_folder
from fastdata.converters.problems import Found, Problem, Progress, VerifyReport
from fastdata.dataset import manifest
from fastdata.errors import CorruptError

__all__ = ["Problem", "Progress", "VerifyReport", "verify"]


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> VerifyReport:
    """Read everything of a packed data set and report all that is wrong with it.

    Every bit of every file counts: shards, index files, catalog, manifest, the list of what was
    left out, and any file that does not belong there. Where a shard is damaged, the samples that
    are concerned are named.

    Args:
        path: A folder of shards, or an LMDB file.
        progress: Called on this thread after each shard.

    Raises:
        NotADatasetError: The path never was a packed data set.
    """
    started = time.perf_counter()
    where = Path(os.path.realpath(path))  # where the list beside an LMDB lies
    found = verify_folder(where, progress) if where.is_dir() else _verify_file(where, progress)
    return VerifyReport(
        path=Path(path),
        samples=found.samples,
        bytes=found.bytes,
        problems=tuple(
            sorted(found.problems, key=lambda problem: (problem.file, problem.key or ""))
        ),
        seconds=time.perf_counter() - started,
    )


def _by_file(problem: Problem) -> tuple[str, str]:
    return problem.file, problem.key or ""


def _verify_file(path: Path, progress: Progress | None) -> Found:
    if path.exists():
        return verify_lmdb(path, progress)
    error = manifest.absent(path)
    if not isinstance(error, CorruptError):
        raise error
    return Found(0, 0, [Problem("unfinished", path.name, None, str(error))])
