"""Parquet and Arrow files with columns of images, as Hugging Face writes them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.columns import Columns
from fastdata.converters.sources.formats.arrow_messages import check_messages
from fastdata.converters.sources.formats.bounds import (
    MOST_ROWS,
    check_compressed,
    check_rows,
    rows_at_once,
)
from fastdata.converters.sources.formats.table import Row, Table, list_table, missing_extra
from fastdata.converters.sources.records import RecordListing
from fastdata.errors import FastdataError, ShardError, SourceError
from fastdata.system.untrusted import read_json

PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff"

_ADVICE = "write the file again, or drop its metadata"
_T = TypeVar("_T")


def list_arrow(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted, folder: Path
) -> RecordListing:
    """List the rows of Parquet, Arrow or Arrow stream files, all of one schema.

    Images are binary columns, or structs of ``bytes`` and ``path``. Names of classes come from the
    features that the ``datasets`` package leaves in a schema.

    Raises:
        MissingExtraError: The package ``pyarrow`` is not installed.
        SourceError: There is no column of images, or files have different columns.
        ShardError: A file is damaged.
        DestinationError: There is no room for the copy.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise missing_extra(root, "Parquet and Arrow", "pyarrow") from None
    schemas = [_schema(path) for path in paths]
    first = schemas[0]
    for path, schema in zip(paths, schemas, strict=True):
        if not schema.equals(first, check_metadata=False):
            raise SourceError(
                f"{path}: its columns are {_shown(schema)}, those of {paths[0]} are "
                f"{_shown(first)}; pack files of one schema"
            )
    images = tuple(entry.name for entry in first if _may_be_image(pa, entry.type))

    def rows(columns: Columns) -> Iterator[Row]:
        if columns.image not in images:
            raise SourceError(
                f"{root}: column {columns.image!r} of type {first.field(columns.image).type} holds "
                "no images; say which one does with --column image=NAME"
            )
        for path in paths:
            yield from _rows(path, columns.all())

    table = Table(
        columns=tuple(first.names),
        images=images,
        rows=rows,
        classes=lambda column: _class_names(paths[0], first, column),
        row_name=lambda image: image.get("path") if isinstance(image, Mapping) else None,
    )
    return list_table(root, inputs, table, wanted, folder)


def _rows(path: Path, names: list[str]) -> Iterator[Row]:
    for batch in _reading(path, _batches(path, names)):
        parts = [batch.column(name) for name in names]
        for place in range(batch.num_rows):  # one after the other: a few bytes can stand for many
            try:
                yield {name: part[place].as_py() for name, part in zip(names, parts, strict=True)}
            except (ValueError, OverflowError) as error:  # a time that Python has none for
                raise ShardError(f"{path}: a row cannot be read: {error}") from error


def _reading(path: Path, found: Iterator[_T]) -> Iterator[_T]:
    """Turn whatever the library raises for a damaged file into one clear error."""
    try:
        yield from found
    except FastdataError:
        raise
    except Exception as error:  # besides its own, it raises Unicode, type and memory errors
        raise ShardError(f"{path}: cannot read this file: {error}; fetch it again") from error


def _batches(path: Path, names: list[str]) -> Iterator[Any]:
    """Batches of rows, validated: no offset or index in them leads out of its buffer."""
    rows = 0
    with path.open("rb") as file:
        batches = _parquet(path, file, names) if _is_parquet(file) else _open_stream(path, file)
        for batch in batches:
            rows += batch.num_rows
            check_rows(path, rows)
            chosen = batch.select(names)
            chosen.validate(full=True)
            yield chosen


def _parquet(path: Path, file: BinaryIO, names: list[str]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    found = pq.ParquetFile(file, page_checksum_verification=True)
    check_rows(path, found.metadata.num_rows)
    for number in range(found.num_row_groups):
        group = found.metadata.row_group(number)
        at_once = MOST_ROWS
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema.partition(".")[0] in names:
                stated = column.total_uncompressed_size
                check_compressed(path, column.total_compressed_size, stated)
                # Any row of a dictionary can be the largest.
                many = 1 if column.has_dictionary_page else group.num_rows
                at_once = min(at_once, rows_at_once(path, stated // max(1, many)))
        yield from found.iter_batches(at_once, row_groups=[number], columns=names)


def _schema(path: Path) -> Any:
    def schema() -> Iterator[Any]:
        with path.open("rb") as file:
            if _is_parquet(file):
                import pyarrow.parquet as pq

                yield pq.read_schema(file)
            else:
                yield _open_stream(path, file).schema

    (found,) = _reading(path, schema())
    return found


def _is_parquet(file: BinaryIO) -> bool:
    head = file.read(len(PARQUET))
    file.seek(0)
    return head == PARQUET


def _open_stream(path: Path, file: BinaryIO) -> Any:
    """Open a stream; an Arrow file is one between a mark and an index, which is not needed."""
    from pyarrow import ipc

    start = len(ARROW_FILE) if file.read(len(ARROW_FILE)) == ARROW_FILE else 0
    check_messages(path, start)
    file.seek(start)
    return ipc.open_stream(file)


def _may_be_image(pa: Any, kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        kind = kind.field("bytes").type if kind.get_field_index("bytes") >= 0 else None
    return kind is not None and (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or _is_view(pa, kind)
    )


def _is_view(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_binary_view(kind)) if hasattr(pa.types, "is_binary_view") else False


def _class_names(path: Path, schema: Any, column: str | None) -> tuple[str, ...] | None:
    """Names of the classes by the features of the ``datasets`` package, if it wrote the file."""
    stated = (schema.metadata or {}).get(b"huggingface")
    if stated is None or column is None:
        return None
    content = read_json(stated, f"{path}: its Hugging Face features", SourceError, _ADVICE)
    try:
        names = content["info"]["features"][column]["names"]
    except (LookupError, TypeError):
        return None
    known = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if known else None


def _shown(schema: Any) -> str:
    return ", ".join(f"{entry.name}: {entry.type}" for entry in schema)
