"""Catalogs that say something else than the files that they are of."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastdata.dataset import manifest
from fastdata.dataset.catalog.builder import CatalogBuilder, CatalogRow
from fastdata.dataset.catalog.reader import Catalog


def edit_catalog(folder: Path, change: Callable[[Any], None]) -> None:
    """Write the catalog of a folder of shards anew, with its rows as ``change`` leaves them."""
    path = folder / "catalog.fdc"
    catalog = Catalog.from_file(path)
    ids = np.arange(len(catalog))
    rows, texts = catalog.rows(ids), zip(catalog.keys(ids), catalog.names(ids), strict=True)
    change(rows)
    builder = CatalogBuilder()
    names = ("offset", "length", "crc", "shard", "label", "width", "height", "flags")
    for row, (key, name) in zip(rows, texts, strict=True):
        columns: dict[str, Any] = {column: int(row[column]) for column in names}
        builder.append(CatalogRow(key.encode(), name.encode(), **columns))
    stored = manifest.Stored(*builder.write(path))
    stated = replace(manifest.load(folder), catalog=stored)  # of the same pack, as it seems
    (folder / manifest.FILE_NAME).write_bytes(stated.encode())
