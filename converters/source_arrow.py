"""Parquet and Arrow files with columns of images, as Hugging Face writes them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastdata.converters.source_builder import Wanted
from fastdata.converters.source_columns import Columns, as_image, as_name
from fastdata.converters.source_records import RecordListing
from fastdata.converters.source_spool import Row, spooled
from fastdata.errors import MissingExtraError, ShardError, SourceError
from fastdata.json_fields import read_json

PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff"

_ADVICE = "write the file again, or drop its metadata"
_ROWS = 32  # decoded at once


def list_arrow(
    root: str, inputs: tuple[str, ...], paths: list[Path], wanted: Wanted, folder: Path
) -> RecordListing:
    """List the rows of Parquet, Arrow or Arrow stream files, all of one schema.

    Images are binary columns, or structs of ``bytes`` and ``path``. Names of classes come from the
    features that the ``datasets`` package leaves in a schema. Rows are decoded once, in order, and
    their images kept in a temporary file until they are packed.

    Args:
        root: The source, for errors.
        inputs: See :class:`RecordListing`.
        paths: The files.
        wanted: Columns, fields, classes.
        folder: Where the temporary file lies.

    Raises:
        MissingExtraError: The package ``pyarrow`` is not installed.
        SourceError: There is no column of images, or files have different columns.
        ShardError: A file is damaged.
        DestinationError: There is no room for the copy.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(
            f"{root}: Parquet and Arrow are read by the package pyarrow; "
            "pip install 'fastdata[sources]'"
        ) from None
    schemas = [_schema(path) for path in paths]
    first = schemas[0]
    for path, schema in zip(paths, schemas, strict=True):
        if not schema.equals(first, check_metadata=False):
            raise SourceError(
                f"{path}: its columns are {_shown(schema)}, those of {paths[0]} are "
                f"{_shown(first)}; pack files of one schema"
            )
    images = tuple(entry.name for entry in first if _may_be_image(pa, entry.type))
    columns = Columns(root, first.names, wanted, images)
    if columns.image not in images:
        kind = first.field(columns.image).type
        raise SourceError(
            f"{root}: column {columns.image!r} of type {kind} holds no images; say which one does "
            "with --column image=NAME"
        )
    names = _class_names(paths[0], first, columns.label)
    rows = (row for path in paths for row in _rows(path, columns))
    return spooled(rows, folder, root, inputs, names=names, classes=wanted.classes)


def _rows(path: Path, columns: Columns) -> Iterator[Row]:
    for batch in _checked(path, _batches(path, columns.all())):
        for values in batch.to_pylist():
            image = values[columns.image]
            path_within = image.get("path") if isinstance(image, Mapping) else None
            name = values[columns.key] if columns.key else path_within
            yield Row(
                as_name(name),
                as_image(image),
                values[columns.label] if columns.label else None,
                columns.further(values),
            )


def _checked(path: Path, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn what the library says of a damaged file into one clear error."""
    import pyarrow as pa

    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{path}: cannot read this file: {error}; fetch it again") from error


def _batches(path: Path, names: list[str]) -> Iterator[Any]:
    with path.open("rb") as file:
        head = file.read(8)
        file.seek(0)
        if head.startswith(PARQUET):
            import pyarrow.parquet as pq

            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            yield from parquet.iter_batches(_ROWS, columns=names)
        elif head == ARROW_FILE:
            from pyarrow import ipc

            reader = ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield from _slices(reader.get_batch(number).select(names))
        else:
            from pyarrow import ipc

            for batch in ipc.open_stream(file):
                yield from _slices(batch.select(names))


def _slices(batch: Any) -> Iterator[Any]:
    for start in range(0, batch.num_rows, _ROWS):
        yield batch.slice(start, _ROWS)


def _schema(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import ipc

    try:
        with path.open("rb") as file:
            head = file.read(8)
            file.seek(0)
            if head.startswith(PARQUET):
                return pq.read_schema(file)
            return (ipc.open_file if head == ARROW_FILE else ipc.open_stream)(file).schema
    except (pa.ArrowException, OSError) as error:
        raise ShardError(f"{path}: cannot read this file: {error}; fetch it again") from error


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
