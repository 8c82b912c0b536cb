"""Finds what is damaged in a shard whose digest is wrong: which samples, or what around them."""

import os
from collections.abc import Iterable

from fastdata.converters.problems import Problem, read_range
from fastdata.converters.tar.layout import Content, Entry, Piece, end_of, pieces, tail
from fastdata.converters.tar.parse import read_members
from fastdata.errors import ShardError


def locate(fd: int, name: str, samples: Iterable[Entry]) -> list[Problem]:
    """Compare every byte of a shard with the catalog.

    In a shard that another program wrote, only the content of samples is compared; its headers are
    parsed.

    Args:
        fd: The shard.
        name: Its name.
        samples: Those that it should hold.

    Raises:
        CatalogError: The catalog is damaged.
        OSError: The shard cannot be read.
    """
    problems: list[Problem] = []
    at: int | None = 0  # where the next sample begins; None once the layout is not ours
    for entry in samples:
        found = None if at is None else pieces(entry, at)
        at = None if found is None else end_of(found)
        parts: list[Piece] = found or [Piece(part.offset, None, part) for part in entry.contents]
        wrong = [_describe(part) for part in parts if not _is_good(fd, part)]
        if wrong:
            shown = ", ".join(wrong[:3]) + (", ..." if len(wrong) > 3 else "")
            problems.append(Problem("damaged", name, entry.key, shown))
    if at is None:
        return problems + structure(fd, name)
    if not _is_good(fd, tail(at)):
        text = f"the end of the archive at byte {at}"
        problems.append(Problem("damaged", name, None, text))
    end = at + len(tail(at).known or b"")
    if os.fstat(fd).st_size > end:
        problems.append(Problem("extended", name, None, f"bytes after its end at byte {end}"))
    return problems


def read_content(fd: int, content: Content) -> bytes | None:
    """An image or a field of a shard; None if its bytes do not match their CRC32C."""
    if content.offset + content.size > os.fstat(fd).st_size:
        return None
    data = read_range(fd, content.offset, content.size)
    return data if content.matches(data) else None


def structure(fd: int, name: str) -> list[Problem]:
    """Parse the headers of a shard that no catalog describes."""
    try:
        for _ in read_members(fd, name):
            pass
    except ShardError as error:
        return [Problem("damaged", name, None, str(error))]
    return []


def _is_good(fd: int, piece: Piece) -> bool:
    if piece.content is not None:
        return read_content(fd, piece.content) is not None
    known = piece.known or b""
    return os.pread(fd, len(known), piece.offset) == known


def _describe(piece: Piece) -> str:
    if piece.content is None:
        what = "tar header, label or padding"
        size = len(piece.known or b"")
    else:
        what = "image" if piece.content.field is None else f"field {piece.content.field!r}"
        size = piece.content.size
    return f"{what} at bytes {piece.offset} to {piece.offset + size - 1}"
