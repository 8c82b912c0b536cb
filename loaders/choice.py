"""Which samples of a data set take part: ``where`` and ``weights``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.batch.source import Source
from fastdata.errors import OptionError

Where = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]] | npt.ArrayLike
Weights = npt.ArrayLike | Mapping[str, float]


def chosen_ids(source: Source, where: Where | None) -> npt.NDArray[np.int64] | range:
    """Ids of the samples that take part, in rising order.

    Args:
        source: The data set.
        where: A function of the catalog's rows, an (n,) structured array with ``label``, ``width``,
            ``height``, ``length`` (bytes) and ``flags``, that returns (n,) bool; or (n,) bool; or
            ids. None takes all.

    Raises:
        OptionError: It is of another shape or type, names ids that are not there, or leaves none.
    """
    n = len(source)
    if where is None:
        return range(n)
    found = np.asarray(where(source.rows(np.arange(n))) if callable(where) else where)
    if found.dtype == np.bool_:
        if found.shape != (n,):
            raise OptionError(f"where must have a value for each of {n} samples: {found.shape}")
        ids = np.flatnonzero(found)
    elif found.ndim == 1 and np.issubdtype(found.dtype, np.integer):
        ids = np.unique(found.astype(np.int64))
        if ids.size and (ids[0] < 0 or ids[-1] >= n):
            raise OptionError(f"where names ids from {ids[0]} to {ids[-1]}, there are {n} samples")
    else:
        raise OptionError(f"where must give booleans or ids, found {found.dtype} {found.shape}")
    if not ids.size:
        raise OptionError(f"{source.path}: where leaves no sample")
    return ids


def sample_weights(
    source: Source, ids: npt.NDArray[np.int64] | range, weights: Weights | None
) -> npt.NDArray[np.float64] | None:
    """(m,) weight of each chosen sample.

    Args:
        source: The data set.
        ids: (m,) what was chosen of it.
        weights: One for each of these samples, or by the name of the class; None for none.

    Raises:
        OptionError: A class is unknown or has no weight.
    """
    if weights is None or not isinstance(weights, Mapping):
        return None if weights is None else np.asarray(weights, np.float64)
    unknown: Sequence[str] = sorted(set(weights) ^ set(source.classes))
    if unknown:
        raise OptionError(f"weights must name each class once, these differ: {unknown[:5]}")
    by_label = np.array([weights[name] for name in source.classes], np.float64)
    return np.asarray(by_label[source.labels()[np.asarray(ids)]], np.float64)
