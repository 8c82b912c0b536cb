"""Tars in the layout of WebDataset, whatever tool wrote them."""

import os
from pathlib import Path

from fastdata.converters.problems import read_range
from fastdata.converters.sources.builder import Builder, Wanted, field_name
from fastdata.converters.sources.records import Extent, Files, RecordListing
from fastdata.converters.tar.webdataset import Group, read_groups
from fastdata.errors import SourceError
from fastdata.system.untrusted import open_regular

_MOST_LABEL = 1024  # bytes of a class's name


def list_tars(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted
) -> RecordListing:
    """List the samples of tars; only headers and labels are read.

    The image is the member with the extension ``columns["image"]``, or the first one that is an
    image by its first bytes. The label is the number or name in ``.cls``, or ``columns["label"]``.
    All other members are fields, or those that ``fields`` names.

    Raises:
        ShardError: As :func:`fastdata.converters.tar.webdataset.read_groups`.
        SourceError: There is no sample.
    """
    builder = Builder(root, inputs, Files(paths))
    for file, path in enumerate(paths):
        try:
            with open_regular(path) as fd:
                for group in read_groups(fd, str(path)):
                    _add(builder, fd, group, file, wanted)
        except OSError as error:
            raise SourceError(f"{path}: cannot read this file: {error.strerror}") from error
    return builder.listing(wanted.classes)


def _add(builder: Builder, fd: int, group: Group, file: int, wanted: Wanted) -> None:
    asked = wanted.columns.get("image")
    image = group.image(fd) if asked is None else asked if asked in group.members else None
    if image is None:
        builder.skip(os.fsdecode(group.key), "no image among its members")
        return
    label = wanted.columns.get("label", "cls")
    further = {
        field_name(extension): Extent(member.offset, member.size, file=file)
        for extension, member in group.members.items()
        if extension not in (image, label) and (not wanted.fields or extension in wanted.fields)
    }
    member = group.members[image]
    # With the key as its stem, a tar of ours gets the same keys again.
    name = group.key + b"." + os.fsencode(image.rpartition(".")[2])
    extent = Extent(member.offset, member.size, file=file)
    builder.add(name, extent, _label(fd, group, label), further)


def _label(fd: int, group: Group, extension: str) -> bytes | None:
    member = group.members.get(extension)
    if member is None:
        return None
    if member.size > _MOST_LABEL:
        raise SourceError(
            f"{os.fsdecode(member.name)}: {member.size} bytes are no label; say which member is "
            "the label with --column label=EXTENSION"
        )
    return read_range(fd, member.offset, member.size).strip()
