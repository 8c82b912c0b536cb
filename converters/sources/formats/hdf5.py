"""HDF5 files with one data set of images and one of labels."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import Columns
from fastdata.converters.sources.formats.bounds import check_rows, rows_at_once
from fastdata.converters.sources.formats.table import Row, Table, list_table, missing_extra
from fastdata.converters.sources.records import RecordListing
from fastdata.errors import FastdataError, ShardError, SourceError

MAGIC = b"\x89HDF\r\n\x1a\n"


def list_hdf5(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted, folder: Path
) -> RecordListing:
    """List the samples of HDF5 files: the entries of the first axis of their data sets.

    Images are encoded bytes (variable-length uint8 or opaque values) or pixels, uint8 of
    (N, H, W, 3), (N, H, W, 1) or (N, H, W). Data sets in groups are called by their paths, as
    ``train/images``. All files must have the data sets of the first one.

    Raises:
        MissingExtraError: The package ``h5py`` is not installed.
        SourceError: There is no data set of images, or lengths or files do not agree.
        ShardError: A file is damaged.
        DestinationError: There is no room for the copy.
    """
    try:
        import h5py  # noqa: F401
    except ImportError:
        raise missing_extra(root, "HDF5", "h5py") from None
    with _opened(paths[0]) as found:
        names = tuple(found)
        images = tuple(name for name, data in found.items() if _may_be_images(data))
    table = Table(
        columns=names,
        images=images,
        rows=lambda columns: (row for path in paths for row in _rows(path, columns)),
    )
    return list_table(root, inputs, table, wanted, folder)


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Any]]:
    """The data sets of a file; whatever the library raises for damage becomes one clear error."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            yield _data_sets(path, file)
    except FastdataError:
        raise
    except Exception as error:  # it raises type, key and value errors besides its own
        raise ShardError(f"{path}: cannot read this file: {error}; fetch it again") from error


def _rows(path: Path, columns: Columns) -> Iterator[Row]:
    names = columns.all()
    with _opened(path) as found:
        if missing := set(names) - set(found):
            raise SourceError(f"{path}: no data set {missing.pop()!r} among {', '.join(found)}")
        count = len(found[columns.image])
        for name in names:
            if len(found[name]) != count:
                raise SourceError(
                    f"{path}: {columns.image!r} has {count} entries, {name!r} has "
                    f"{len(found[name])}; choose data sets that belong together with --column"
                )
        at_once = min(_rows_at_once(path, found[name]) for name in names)
        for start in range(0, count, at_once):
            parts = {name: found[name][start : start + at_once] for name in names}
            for place in range(len(parts[columns.image])):
                yield {name: _plain(part[place]) for name, part in parts.items()}


def _data_sets(path: Path, file: Any) -> dict[str, Any]:
    """All data sets with a first axis, by their paths.

    Raises:
        SourceError: One lies in another file: a download could name any file of this machine.
    """
    import h5py

    found: dict[str, Any] = {}

    def external_link(name: str, link: Any) -> str | None:
        is_external = isinstance(link, h5py.ExternalLink)
        return f"{name!r} is a link to another file" if is_external else None

    def visit(name: str, item: Any) -> str | None:
        if not isinstance(item, h5py.Dataset):
            return None
        if item.external:
            return f"{name!r} is a data set whose bytes lie in another file"
        if item.is_virtual:
            return f"{name!r} is a virtual data set, which takes its bytes from another file"
        if item.ndim:
            found[name] = item
        return None

    elsewhere = file.visititems_links(external_link) or file.visititems(visit)
    if elsewhere:
        raise SourceError(
            f"{path}: {elsewhere}; pack a file that holds all of its data (h5repack makes one)"
        )
    return found


def _rows_at_once(path: Path, data: Any) -> int:
    """How many rows to read at once, by what the data set states."""
    row_bytes = math.prod(data.shape[1:]) * data.dtype.itemsize
    check_rows(path, len(data), row_bytes)
    chunk_bytes = math.prod(data.chunks or (0,)) * data.dtype.itemsize
    return rows_at_once(path, row_bytes, chunk_bytes)


def _may_be_images(data: Any) -> bool:
    import h5py

    inner = h5py.check_vlen_dtype(data.dtype)
    if inner is not None:
        return bool(inner == np.uint8) and data.ndim == 1
    return bool(data.dtype == np.uint8 and data.ndim in (3, 4)) or data.dtype.kind == "V"


def _plain(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.void) else value
