"""The content of a data set in numbers, for ``fastdata info``."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.dataset.catalog.format import FORMAT_MASK
from fastdata.images.probe import FORMATS
from fastdata.loaders.readers.folder import FolderSource
from fastdata.loaders.readers.packed import open_source

_BINS = 10


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Facts about a packed data set or a folder of images, ready for JSON.

    Returns:
        path, kind, samples, classes (name, or number where classes have no names -> count),
        class_bytes (the same names -> bytes of the images), unlabelled, bytes (of encoded images),
        fingerprint, and histograms (of ``"bytes"``, the size of an image); for packed ones also
        stored_bytes, shards, fields, options, formats (name -> count), skipped, not_recoded and
        lossy_notes (reason -> count), width and height as [smallest, median, largest] in pixels,
        and histograms of ``"width"``, ``"height"`` and ``"megapixels"``.

        A histogram is at most 10 lists [low, high, count] in rising order, which hold all samples:
        count of them are at least low and below high, in the last one at most high. Their widths
        grow by the same factor, as far as whole numbers allow.

    Raises:
        NotADatasetError: There is no data set at ``path``.
        CorruptError: It is damaged.
    """
    source = open_source(path)
    try:
        if isinstance(source, FolderSource):
            return _common(source, source.rows(np.arange(len(source)))["length"])
        manifest, catalog = source.manifest, source.catalog
        width, height = (catalog.column(name).astype(np.int64) for name in ("width", "height"))
        facts = _common(source, catalog.column("length"))
        megapixels = [
            [low / 1e6, high / 1e6, number] for low, high, number in histogram(width * height)
        ]
        codes = np.bincount(catalog.column("flags") & FORMAT_MASK, minlength=len(FORMATS)).tolist()
        return {
            **facts,
            "stored_bytes": sum(shard.bytes for shard in manifest.shards),
            "shards": len(manifest.shards),
            "fields": list(manifest.fields),
            "options": dict(manifest.options),
            "formats": {name: n for name, n in zip(FORMATS, codes, strict=False) if n},
            "skipped": dict(manifest.skipped),
            "not_recoded": dict(manifest.kept),
            "lossy_notes": dict(manifest.noted),
            "width": _spread(width),
            "height": _spread(height),
            "histograms": {
                "width": histogram(width),
                "height": histogram(height),
                "megapixels": megapixels,
                **facts["histograms"],
            },
        }
    finally:
        source.close()


def histogram(values: npt.NDArray[Any]) -> list[list[int]]:
    """At most 10 bins of whole numbers of 0 or more, as ``describe`` says.

    Args:
        values: (n,), n of 1 or more.
    """
    low, high = int(values.min()), int(values.max())
    # From low + 1, since there is no geometric series from 0.
    edges = np.rint(np.geomspace(low + 1, high + 1, _BINS + 1)).astype(np.int64) - 1
    edges = np.unique(np.concatenate([[low], edges[1:-1], [high]]))
    if len(edges) == 1:
        return [[low, high, len(values)]]
    counts, _ = np.histogram(values, edges)
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    return [list(bin) for bin in bins]


def _common(source: Any, lengths: npt.NDArray[Any]) -> dict[str, Any]:
    """Facts of any data set, given the bytes of each image, (n,)."""
    labels = source.labels()
    numbers = np.arange(len(source.classes)) if source.classes else np.unique(labels[labels >= 0])
    names = source.classes or tuple(map(str, numbers.tolist()))
    known = np.isin(labels, numbers)
    places = np.searchsorted(numbers, labels[known])
    counts = np.bincount(places, minlength=len(names)).tolist()
    # Sums in floating point are exact up to 2^53 bytes, which is 9 PB.
    class_bytes = np.bincount(places, lengths[known], minlength=len(names)).tolist()
    return {
        "path": str(source.path),
        "kind": source.kind,
        "samples": len(source),
        "classes": dict(zip(names, counts, strict=True)),
        "class_bytes": dict(zip(names, map(int, class_bytes), strict=True)),
        "unlabelled": len(labels) - int(known.sum()),
        "bytes": int(lengths.sum(dtype=np.int64)),
        "fingerprint": source.fingerprint,
        "histograms": {"bytes": histogram(lengths)},
    }


def _spread(values: npt.NDArray[Any]) -> list[int]:
    """Smallest, median and largest."""
    return [int(values.min()), int(np.median(values)), int(values.max())]
