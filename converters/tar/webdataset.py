"""Samples of a tar by WebDataset's rule: consecutive members that share a key."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from fastdata.converters.tar.parse import Member, read_members
from fastdata.errors import DecodeError, ShardError
from fastdata.images.probe import probe, sniff

CLASSES = 1_000_000  # labels are below; no data set has more classes

_NAME = re.compile(rb"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_META = re.compile(rb"__[^/]*__($|/)")
_LABEL = re.compile(rb"\s*(-1|\d{1,6})\s*")
_MOST = 0xFFFFFFFF  # bytes of one member
_HEAD = 16


class Group(NamedTuple):
    """The members of a sample.

    Attributes:
        key: The part of their names that they share.
        members: Each member by its extension in lower case, in the order of the tar.
    """

    key: bytes
    members: dict[str, Member]

    def image(self, fd: int) -> str | None:
        """Extension of the image: the first member that is one by its content."""
        found = [
            extension
            for extension, member in self.members.items()
            if sniff(os.pread(fd, min(_HEAD, member.size), member.offset))
        ]
        # Two bytes are not much to go by: a text may begin with "BM", too.
        if len(found) > 1:
            return next((name for name in found if self._is_image(fd, name)), found[0])
        return found[0] if found else None

    def _is_image(self, fd: int, extension: str) -> bool:
        member = self.members[extension]
        try:
            probe(os.pread(fd, member.size, member.offset))
        except DecodeError:
            return False
        return True

    def label(self, fd: int) -> int | None:
        """The number in ``.cls``; None if there is no such member, or it holds no class number."""
        member = self.members.get("cls")
        if member is None or member.size > _HEAD:
            return None
        match = _LABEL.fullmatch(os.pread(fd, member.size, member.offset))
        return int(match[1]) if match else None


def read_groups(fd: int, where: str) -> Iterator[Group]:
    """Yield the samples of a tar; only headers are read.

    Members that webdataset ignores are ignored: names without an extension, hidden ones, and
    metadata under ``__NAME__``.

    Raises:
        ShardError: As :func:`read_members`; or a sample has two members of one extension, or its
            members are not consecutive; or one of them is over 4 GiB.
    """
    seen: set[bytes] = set()
    group: Group | None = None
    for member in read_members(fd, where):
        match = _NAME.fullmatch(member.name)
        if match is None or _META.match(member.name):
            continue
        key, extension = match[1], os.fsdecode(match[2]).lower()
        if member.size > _MOST:
            raise _error(where, member, "over 4 GiB")
        if group is not None and group.key == key:
            if extension in group.members:
                raise _error(where, member, "the sample has two members of this extension")
            group.members[extension] = member
            continue
        # webdataset would make two samples of one key, of which catalogs know only one.
        if key in seen:
            raise _error(where, member, "the members of this sample are not consecutive")
        seen.add(key)
        if group is not None:
            yield group
        group = Group(key, {extension: member})
    if group is not None:
        yield group


def _error(where: str, member: Member, text: str) -> ShardError:
    return ShardError(f"{where}: at byte {member.start}: {os.fsdecode(member.name)!r}: {text}")
