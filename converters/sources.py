"""What a pack is to hold: a folder or a list, its fields and classes, and how much of it."""

import os
from pathlib import Path

from fastdata.converters.dedupe import without_duplicates
from fastdata.converters.listing import Listing
from fastdata.converters.scan import scan
from fastdata.converters.source_list import list_from, read_classes
from fastdata.converters.split import limit as limited
from fastdata.errors import OptionError

StrPath = str | os.PathLike[str]


def list_source(
    source: StrPath,
    *,
    manifest: StrPath | None = None,
    fields: tuple[str, ...] = (),
    classes: StrPath | None = None,
    dedupe: bool = False,
    limit: int | None = None,
    workers: int = 1,
) -> Listing:
    """List the files of a source.

    Args:
        source: The folder.
        manifest: A list of files in it; see :func:`fastdata.converters.source_list.list_from`.
        fields: Extensions of files beside images that are fields of theirs.
        classes: A file with names of classes, one a line, in the order of their labels.
        dedupe: Leaves out files of the same bytes as another.
        limit: Most files, drawn at random.
        workers: Threads that compare files.

    Raises:
        OptionError: An argument is out of range, or contradicts another.
        SourceError: The source, the list or the classes cannot be used.
    """
    names = None if classes is None else read_classes(Path(classes))
    if manifest is not None and fields:
        raise OptionError("fields beside images cannot be joined with a list; make columns of them")
    if manifest is None:
        listing = scan(Path(source), fields=fields, classes=names)
    else:
        listing = list_from(Path(manifest), Path(source), names)
    if dedupe:
        listing = without_duplicates(listing, workers)
    return listing if limit is None else limited(listing, limit)
