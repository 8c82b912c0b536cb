"""How well an order mixes, for ``fastdata info --order``."""

import os
from typing import NamedTuple

import numpy as np

from fastdata.loaders.readers.packed import open_source
from fastdata.plan.epochs import Epochs, Shuffle, Stratum

_BATCH = 256
_BATCHES = 64  # that are looked at, spread over the epoch
_NEAR = 256  # ids; a block of the window order


class Mixing(NamedTuple):
    """Figures of one order's batches.

    Attributes:
        order: ``"full shuffle"``, ``"window"`` or ``"as packed"``.
        labels: Mean number of different labels in a batch.
        neighbours: Mean share of a batch's samples that have another one of the batch near them in
            the data set, within 256 places; such neighbours may come from one folder of the source.
        span: Share of the data set that 8,192 consecutive samples of the order come from, in blocks
            of 256: the part that a disk has to read at a time.
    """

    order: str
    labels: float
    neighbours: float
    span: float


def mixing(path: str | os.PathLike[str]) -> tuple[Mixing, ...]:
    """Compare the orders over a data set; batches are of 256 samples, or of all there are.

    Raises:
        NotADatasetError: ``path`` holds no data set.
        CorruptError: It is damaged.
    """
    source = open_source(path)
    try:
        labels, n = source.labels(), len(source)
    finally:
        source.close()
    orders: tuple[tuple[str, Shuffle], ...] = (
        ("full shuffle", True),
        ("window", "window"),
        ("as packed", False),
    )
    return tuple(
        _measure(name, Epochs(source.fingerprint, (Stratum(range(n), n),), shuffle), labels)
        for name, shuffle in orders
    )


def _measure(name: str, epochs: Epochs, labels: np.ndarray) -> Mixing:
    n = len(epochs)
    size, far = min(_BATCH, n), min(8192, n)
    kinds, near, span = [], [], []
    for start in np.linspace(0, n - size, _BATCHES).astype(np.int64).tolist():
        ids = np.sort(epochs.draw(np.arange(start, start + size, dtype=np.int64), 0).ids)
        kinds.append(len(np.unique(labels[ids])))
        gaps = np.diff(ids, prepend=ids[0] - n, append=ids[-1] + n)
        near.append(float((np.minimum(gaps[:-1], gaps[1:]) <= _NEAR).mean()))
    for start in np.linspace(0, n - far, 8).astype(np.int64).tolist():
        ids = epochs.draw(np.arange(start, start + far, dtype=np.int64), 0).ids
        span.append(len(np.unique(ids // _NEAR)) / -(-n // _NEAR))
    return Mixing(name, *(round(float(np.mean(values)), 3) for values in (kinds, near, span)))
