"""What a loader draws from: a data set, what was chosen of it, and how its epochs go."""

import os

from fastdata.batch.source import Source
from fastdata.loaders.choice import Weights, Where, chosen_ids, sample_weights
from fastdata.loaders.readers.mix import Mix, MixedSource
from fastdata.loaders.readers.open_source import open_source
from fastdata.plan.epochs import Epochs, Shuffle, Stratum


def drawn_from(
    path: str | os.PathLike[str] | Mix,
    *,
    where: Where | None,
    weights: Weights | None,
    draws: int | None,
    repeats: int,
    shuffle: Shuffle,
    seed: int,
) -> tuple[Source, Epochs]:
    """Open a data set and say what its epochs draw; see :class:`fastdata.Loader`.

    Raises:
        NotADatasetError: ``path`` holds no data set.
        CorruptError: It is damaged.
        OptionError: An argument is out of range, or does not fit the data set.
    """
    source: Source = MixedSource(path) if isinstance(path, Mix) else open_source(path)
    ids = chosen_ids(source, where)
    strata = (
        source.strata(ids, draws)
        if isinstance(source, MixedSource)
        else (Stratum(ids, len(ids) if draws is None else draws),)
    )
    weighted = sample_weights(source, ids, weights)
    return source, Epochs(source.fingerprint, strata, shuffle, seed, repeats, weighted)
