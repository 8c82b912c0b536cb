"""What may be wrong with a data set on the disk; ranges and digests of its files."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fastdata.dataset.manifest import Stored, sha256_text
from fastdata.errors import ShardError
from fastdata.system.untrusted import open_regular

Progress = Callable[[str, int, int], object]
"""Called with the current step, bytes done so far, and bytes in all."""

CHUNK = 1 << 20


@dataclass(frozen=True)
class Problem:
    """One difference from what was packed.

    Attributes:
        kind: ``"missing"``, ``"extra"``, ``"truncated"``, ``"extended"``, ``"damaged"``,
            ``"unreadable"`` or ``"unfinished"``.
        file: Name of the file within the data set.
        key: Of the sample; None if it does not concern a single one.
        text: Description.
    """

    kind: str
    file: str
    key: str | None
    text: str


@dataclass(frozen=True)
class VerifyReport:
    """What ``verify`` found.

    Attributes:
        path: The data set.
        samples: Samples that were checked.
        bytes: Bytes that were read.
        problems: What is wrong, by file; empty if every byte is as it was packed.
        seconds: Time it took.
    """

    path: Path
    samples: int
    bytes: int
    problems: tuple[Problem, ...]
    seconds: float


class Found(NamedTuple):
    """Outcome of checking a folder of shards or an LMDB file.

    Attributes:
        samples: Samples that were looked at.
        bytes: Bytes that were read.
        problems: What is wrong.
    """

    samples: int
    bytes: int
    problems: list[Problem]


def digest_of(fd: int, start: int, size: int) -> str:
    """SHA-256 of a range of an open file, or of what there is of it, ``"sha256:..."``."""
    digest = hashlib.sha256()
    for at in range(start, start + size, CHUNK):
        digest.update(os.pread(fd, min(CHUNK, start + size - at), at))
    return sha256_text(digest.digest())


def read_range(fd: int, start: int, size: int) -> bytes:
    """Bytes of an open file; fewer if it ends before."""
    data = os.pread(fd, size, start)
    while data and len(data) < size:  # a single read takes at most 2 GiB
        more = os.pread(fd, size - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def failure(file: str, error: OSError | ShardError) -> Problem:
    """The problem of a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return Problem("missing", file, None, "the file is missing")
    text = str(error) if isinstance(error, ShardError) else str(error.strerror or error)
    return Problem("unreadable", file, None, text)


def check_stored(path: Path, stated: Stored) -> tuple[int, str | None, list[Problem]]:
    """Compare a file with its size and digest.

    Returns:
        Bytes read, the digest that was found, and what is wrong.
    """
    try:
        with open_regular(path) as fd:
            size = os.fstat(fd).st_size
            found = digest_of(fd, 0, size)
    except (OSError, ShardError) as error:
        return 0, None, [failure(path.name, error)]
    if size != stated.bytes:
        return size, found, [wrong_size(path.name, size, stated.bytes)]
    if found != stated.digest:
        text = "its bytes differ from those that were packed"
        return size, found, [Problem("damaged", path.name, None, text)]
    return size, found, []


def wrong_size(file: str, size: int, stated: int) -> Problem:
    """The problem of a file that is shorter or longer than it should be."""
    kind = "truncated" if size < stated else "extended"
    return Problem(kind, file, None, f"must have {stated} bytes, found {size}")
