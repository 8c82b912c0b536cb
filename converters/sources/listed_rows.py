"""Rows of a list of files: CSV with a header, or JSON lines."""

import codecs
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastdata.errors import SourceError
from fastdata.system.untrusted import read_json

_ADVICE = 'a line must be a JSON object such as {"path": "a.jpg"}'

Row = tuple[int, Mapping[str, object]]
"""Number of a line, and its values by column; None for an empty cell."""


def rows(file: Path) -> Iterator[Row]:
    """Read a list of files row by row.

    Raises:
        SourceError: It has another format, or a line has an error.
        OSError: It cannot be read.
    """
    kind = file.suffix.lower()
    if kind == ".csv":
        return _csv_rows(file)
    if kind in (".jsonl", ".ndjson"):
        return _json_rows(file)
    raise SourceError(f"{file}: a list must be a .csv file, or JSON lines in a .jsonl file")


def _csv_rows(file: Path) -> Iterator[Row]:
    # Names that are not UTF-8 are read as lone surrogates, which encode to the same bytes.
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        header: list[str] | None = None
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise SourceError(f"{file}: line {reader.line_num}: {error}") from None
            if not cells:  # an empty line
                continue
            if header is None:
                header = cells
                _check_header(file, header)
            elif len(cells) != len(header):
                raise SourceError(
                    f"{file}: line {reader.line_num}: {len(cells)} values for {len(header)} columns"
                )
            else:
                row = zip(header, cells, strict=True)
                yield reader.line_num, {name: cell or None for name, cell in row}


def _check_header(file: Path, header: list[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            raise SourceError(f"{file}: column {name!r} is repeated")
    if "path" not in header:
        raise SourceError(f"{file}: no column 'path' among {header}; the first line names them")


def _json_rows(file: Path) -> Iterator[Row]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            row = read_json(text, f"{file}: line {number}", SourceError, _ADVICE)
            if not isinstance(row, dict):
                raise SourceError(f"{file}: line {number}: not an object; {_ADVICE}")
            yield number, row
