"""Limits on what a file may take in memory, checked by its metadata before anything is read."""

from pathlib import Path

from fastdata.errors import SourceError

MOST_ROWS = 32  # read at once
_BLOCK = 64 << 20  # bytes read at once, unless a single row has more
_MOST = 1 << 30  # bytes of a row, or of a block that is decompressed as a whole
_MOST_RATIO = 8  # of a larger block to its compressed size: images hardly compress
_SPARSE = 2048  # twice the best ratio of common compressors


def check_rows(path: Path, rows: int, row_bytes: int = 0) -> None:
    """Refuse rows that a file of this size cannot hold.

    Args:
        path: The file.
        rows: How many it states.
        row_bytes: Bytes of each, if all have the same size.

    Raises:
        SourceError: There are more rows than bytes, or more bytes than any compression explains.
    """
    size = path.stat().st_size
    if rows > size or rows * row_bytes > max(_BLOCK, _SPARSE * size):
        raise SourceError(
            f"{path}: states {rows} rows of {row_bytes or 'unknown'} bytes in a file of {size} "
            "bytes: they were never written, or the file is damaged; write it again"
        )


def rows_at_once(path: Path, row_bytes: int, chunk_bytes: int = 0) -> int:
    """How many rows of this size to read at once.

    Args:
        path: The file.
        row_bytes: Bytes of a row, in memory.
        chunk_bytes: Bytes that are decompressed as a whole.

    Raises:
        SourceError: A row or a chunk is too large.
    """
    if max(row_bytes, chunk_bytes) > _MOST:
        raise SourceError(
            f"{path}: a row of {row_bytes} bytes, or a chunk of {chunk_bytes}; at most {_MOST} are "
            "read at once: write encoded images, one a row, in smaller chunks"
        )
    return max(1, min(MOST_ROWS, _BLOCK // max(1, row_bytes)))


def check_compressed(path: Path, stored: int, stated: int) -> None:
    """Refuse a block whose decompressed size is out of proportion.

    Args:
        path: The file.
        stored: Bytes of the block in the file.
        stated: Bytes that it will take in memory.

    Raises:
        SourceError: It is over 1 GiB and over 8 times the compressed size.
    """
    if stated > max(_MOST, _MOST_RATIO * stored):
        raise SourceError(
            f"{path}: a block of {stored} bytes states that it holds {stated}; write the file "
            "again in smaller batches, or without compression"
        )
