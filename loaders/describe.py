"""What a data set holds, for ``fastdata info``."""

import os
from typing import Any

import numpy as np

from fastdata.loaders.folder_reader import FolderSource
from fastdata.loaders.open_source import open_source


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Facts about a packed data set or a folder of images, ready for JSON.

    Returns:
        path, kind, samples, classes (name -> count), unlabelled, bytes (of encoded images),
        fingerprint; for packed ones also stored_bytes, shards, fields, options, skipped
        (reason -> count), and width and height as [smallest, median, largest] in pixels.

    Raises:
        NotADatasetError: There is no data set at ``path``.
        CorruptError: It is damaged.
    """
    source = open_source(path)
    try:
        labels = source.labels()
        counts = np.bincount(labels[labels >= 0], minlength=len(source.classes)).tolist()
        facts: dict[str, Any] = {
            "path": str(source.path),
            "kind": source.kind,
            "samples": len(source),
            "classes": dict(zip(source.classes, counts, strict=True)),
            "unlabelled": int((labels < 0).sum()),
            "fingerprint": source.fingerprint,
        }
        if isinstance(source, FolderSource):
            return {**facts, "bytes": source.bytes}
        manifest, catalog = source.manifest, source.catalog
        return {
            **facts,
            "bytes": int(catalog.column("length").sum(dtype=np.int64)),
            "stored_bytes": sum(shard.bytes for shard in manifest.shards),
            "shards": len(manifest.shards),
            "fields": list(manifest.fields),
            "options": dict(manifest.options),
            "skipped": dict(manifest.skipped),
            "width": _spread(catalog.column("width")),
            "height": _spread(catalog.column("height")),
        }
    finally:
        source.close()


def _spread(values: np.ndarray[Any, Any]) -> list[int]:
    """Smallest, median and largest."""
    return [int(values.min()), int(np.median(values)), int(values.max())]
