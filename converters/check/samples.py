"""Reads a tar for ``index``: its samples, their checksums, what is left out, its digest."""

import os
from pathlib import Path
from typing import NamedTuple

from fastdata.converters.problems import digest_of, read_range
from fastdata.converters.tar.shards import index_file, index_line
from fastdata.converters.tar.webdataset import Group, read_groups
from fastdata.dataset.catalog.builder import CatalogRow
from fastdata.dataset.manifest import Shard, Skipped, digest_text
from fastdata.errors import DecodeError, ShardError
from fastdata.images.probe import FORMATS, probe
from fastdata.system.checksum import crc32c
from fastdata.system.untrusted import open_regular


class Indexed(NamedTuple):
    """What was found in a tar.

    Attributes:
        shard: Its entry in the manifest.
        lines: Content of its index file.
        rows: Its samples.
        skipped: What was left out.
        unlabelled: Number of samples whose ``.cls`` is not a number.
    """

    shard: Shard
    lines: bytes
    rows: list[CatalogRow]
    skipped: list[Skipped]
    unlabelled: int


def survey(path: Path) -> set[str]:
    """Names of the fields that samples of a tar have.

    Raises:
        ShardError: As :func:`read_groups`.
        OSError: It cannot be read.
    """
    fields = set()
    with open_regular(path) as fd:
        for group in read_groups(fd, str(path)):
            image = group.image(fd)
            if image is not None:
                fields |= set(_fields(fd, group, image))
    return fields


def read_tar(path: Path, fields: tuple[str, ...]) -> Indexed:
    """Read a tar whole.

    Args:
        path: The tar.
        fields: Names of the fields in all tars of the data set.

    Raises:
        ShardError: As :func:`read_groups`.
        OSError: It cannot be read.
    """
    rows: list[CatalogRow] = []
    skipped = []
    lines = []
    unlabelled = 0
    with open_regular(path) as fd:
        for group in read_groups(fd, str(path)):
            lines.append(_line(group))
            row = _row(fd, group)
            if isinstance(row, str):
                skipped.append(Skipped(f"{path.name}/{os.fsdecode(group.key)}", row))
            else:
                if not set(row.fields) <= set(fields):
                    raise ShardError(f"{path}: changed while it was read; index it again")
                rows.append(row)
                unlabelled += "cls" in row.fields
        text = index_file(lines)
        size = os.fstat(fd).st_size
        shard = Shard(
            size,
            digest_of(fd, 0, size),
            path.name,
            len(rows),
            digest_text(text),
        )
    return Indexed(shard, text, rows, skipped, unlabelled)


def _row(fd: int, group: Group) -> CatalogRow | str:
    """The sample's row, or the reason for leaving it out."""
    image = group.image(fd)
    if image is None:
        return "no image among its members"
    member = group.members[image]
    data = read_range(fd, member.offset, member.size)
    try:
        info = probe(data)
    except DecodeError as error:
        return f"no usable image: {error}"
    fields = {}
    for extension in _fields(fd, group, image):
        offset, size = group.members[extension][2:]
        fields[extension] = (offset, size, crc32c(read_range(fd, offset, size)))
    label = group.label(fd)
    return CatalogRow(
        key=group.key,
        name=member.name,
        offset=member.offset,
        length=member.size,
        crc=crc32c(data),
        label=-1 if label is None else label,
        width=info.width,
        height=info.height,
        flags=FORMATS.index(info.format),
        fields=fields,
    )


def _fields(fd: int, group: Group, image: str) -> list[str]:
    """Extensions of all members but the image and a label that is a number."""
    known = {image} if group.label(fd) is None else {image, "cls"}
    return [extension for extension in group.members if extension not in known]


def _line(group: Group) -> bytes:
    return index_line(
        [
            (os.fsencode(extension), member.offset, member.size, member.name)
            for extension, member in group.members.items()
        ]
    )
