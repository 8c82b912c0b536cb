"""What a pack is to hold: images of a source, their fields and classes, and how much of it."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import check_columns
from fastdata.converters.sources.dedupe import without_duplicates
from fastdata.converters.sources.detect import Found, find
from fastdata.converters.sources.file_list import list_from, read_classes
from fastdata.converters.sources.folder import scan
from fastdata.converters.sources.formats.arrow import list_arrow
from fastdata.converters.sources.formats.hdf5 import list_hdf5
from fastdata.converters.sources.formats.lmdb import list_lmdb
from fastdata.converters.sources.formats.mds import list_mds
from fastdata.converters.sources.formats.packed import list_packed
from fastdata.converters.sources.formats.tar import list_tars
from fastdata.converters.sources.formats.tfrecord import list_tfrecord
from fastdata.converters.sources.iterable import Samples, list_samples
from fastdata.converters.sources.listing import Listing, Skipped
from fastdata.converters.sources.split import limit as limited
from fastdata.errors import OptionError

StrPath = str | os.PathLike[str]
AnySource = StrPath | Samples

_LISTERS = {
    "packed": list_packed,
    "webdataset": list_tars,
    "lmdb": list_lmdb,
    "tfrecord": list_tfrecord,
    "mds": list_mds,
}
_SPOOLERS = {"parquet": list_arrow, "arrow": list_arrow, "hdf5": list_hdf5}


def list_source(
    source: AnySource,
    *,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
    manifest: StrPath | None = None,
    fields: tuple[str, ...] = (),
    classes: StrPath | None = None,
    dedupe: bool = False,
    limit: int | None = None,
    workers: int = 1,
    room: Path | None = None,
) -> Listing:
    """List the images of a source.

    Args:
        source: A path or a pattern of :func:`fastdata.converters.sources.detect.find`, or what
            :func:`fastdata.converters.sources.iterable.list_samples` takes.
        kind: What the path is, where its content does not tell.
        columns: What the source calls the ``"image"``, the ``"label"`` and the ``"key"``.
        manifest: A list of files in a folder; see
            :func:`fastdata.converters.sources.file_list.list_from`.
        fields: What becomes fields of samples: extensions of files beside the images of a folder;
            columns, or members of tars, of other sources.
        classes: A file with names of classes, one a line, in the order of their labels.
        dedupe: Leaves out files of the same bytes as another.
        limit: Most files, drawn at random.
        workers: Threads that compare files.
        room: Where the images of a source that is read once are kept until they are packed.

    Raises:
        OptionError: An argument is out of range, or contradicts another.
        SourceError: The source, the list or the classes cannot be used.
        CorruptError: A file of the source is damaged.
        MissingExtraError: The source needs a package that is not installed.
        DestinationError: There is no room for a copy of a source that is read once.
    """
    check_columns(columns or {})
    names = None if classes is None else read_classes(Path(classes))
    wanted = Wanted(columns or {}, fields, names)
    if not isinstance(source, str | os.PathLike):
        if kind is not None or manifest is not None:
            raise OptionError("a kind or a list of files says something of a path, not of samples")
        listing: Listing = list_samples(source, wanted, room or Path(tempfile.gettempdir()))
    else:
        listing = _list_path(source, kind, manifest, wanted, room)
    if dedupe:
        listing = without_duplicates(listing, workers)
    return listing if limit is None else limited(listing, limit)


def _list_path(
    source: StrPath, kind: str | None, manifest: StrPath | None, wanted: Wanted, room: Path | None
) -> Listing:
    if manifest is not None:
        if wanted.columns or kind not in (None, "folder"):
            raise OptionError("a list names files of a folder; give neither columns nor a kind")
        if wanted.fields:
            raise OptionError(
                "fields beside images cannot be joined with a list; make columns of them"
            )
        return list_from(Path(manifest), Path(source), wanted.classes)
    found = find(source, kind)
    listing = _list_found(os.fspath(source), found, wanted, room)
    others = (Skipped(name, f"not a file of {found.kind}") for name in found.others)
    return replace(listing, skipped=(*listing.skipped, *others))


def _list_found(root: str, found: Found, wanted: Wanted, room: Path | None) -> Listing:
    if found.kind == "folder":
        if wanted.columns:
            raise OptionError(f"{root}: a folder of images has no columns")
        return scan(Path(root), fields=wanted.fields, classes=wanted.classes)
    if found.kind in _LISTERS:
        return _LISTERS[found.kind](root, found.inputs, found.paths, wanted)
    copy = room or Path(tempfile.gettempdir())
    return _SPOOLERS[found.kind](root, found.inputs, found.paths, wanted, copy)
