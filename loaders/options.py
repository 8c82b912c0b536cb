"""The options of a loader: frozen objects, checked once, that are passed on as they are."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed

from fastdata.batch.batch import Augment
from fastdata.batch.source import Ids, Source
from fastdata.batch.workers import Transform
from fastdata.device.normalize import IMAGENET, Normalization
from fastdata.device.slots import brief
from fastdata.errors import OptionError
from fastdata.images.limits import MAX_PIXELS, MOST_PIXELS
from fastdata.plan.crop import VALIDATION, Crop
from fastdata.plan.epochs import Shuffle
from fastdata.system import resources
from fastdata.system.threads import MOST, check_count

Where = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]] | npt.ArrayLike
Weights = npt.ArrayLike | Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Sampling:
    """Which samples an epoch draws, and how often; by default every sample once.

    Args:
        where: Only these samples: a function of the catalog's rows, an (n,) structured array with
            ``label``, ``width``, ``height``, ``length`` (bytes) and ``flags``, that returns (n,)
            bool; or (n,) bool; or ids. None takes all.
        weights: Draw with replacement, by these weights: one for each chosen sample, or for each
            class by its name. None draws without replacement.
        draws: Samples in an epoch; None means as many as were chosen. Without weights, whole rounds
            through all of them and a random rest.
        repeats: Times that each sample comes in a row, each augmented differently.

    Raises:
        OptionError: ``draws`` or ``repeats`` is less than 1.
    """

    where: Where | None = None
    weights: Weights | None = None
    draws: int | None = None
    repeats: int = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.draws is not None and self.draws < 1:
            raise OptionError(f"draws must be 1 or more, found {self.draws}")
        if self.repeats < 1:
            raise OptionError(f"repeats must be 1 or more, found {self.repeats}")

    def chosen_ids(self, source: Source) -> Ids | range:
        """Ids of the samples that take part, in rising order.

        Raises:
            OptionError: ``where`` has another shape or type, names ids that are not there, or
                leaves none.
        """
        n = len(source)
        if self.where is None:
            return range(n)
        rows = self.where
        found = np.asarray(rows(source.rows(np.arange(n))) if callable(rows) else rows)
        if found.dtype == np.bool_:
            if found.shape != (n,):
                raise OptionError(
                    f"where must have a value for each of {n} samples, found shape {found.shape}"
                )
            ids = np.flatnonzero(found)
        elif found.ndim == 1 and np.issubdtype(found.dtype, np.integer):
            # sorted and once each: the order of an epoch must not depend on how they were listed
            ids = np.unique(found.astype(np.int64))
            if ids.size and (ids[0] < 0 or ids[-1] >= n):
                raise OptionError(
                    f"where names ids from {ids[0]} to {ids[-1]}, there are {n} samples"
                )
        else:
            raise OptionError(f"where must give booleans or ids, found {found.dtype} {found.shape}")
        if not ids.size:
            raise OptionError(f"{source.path}: where leaves no sample")
        return ids

    def sample_weights(self, source: Source, ids: Ids | range) -> npt.NDArray[np.float64] | None:
        """(m,) weight of each of the chosen samples, (m,); None without weights.

        Raises:
            OptionError: A class is unknown or has no weight.
        """
        if self.weights is None or not isinstance(self.weights, Mapping):
            return None if self.weights is None else np.asarray(self.weights, np.float64)
        unknown: Sequence[str] = sorted(set(self.weights) ^ set(source.classes))
        if unknown:
            raise OptionError(f"weights must name each class once, these differ: {unknown[:5]}")
        # every class, even at weight 0: a misspelt name must not pass for one that was left out
        by_label = np.array([self.weights[name] for name in source.classes], np.float64)
        return np.asarray(by_label[source.labels()[np.asarray(ids)]], np.float64)


@dataclass(frozen=True)
class Replace:
    """Replace bad samples by good ones instead of failing, and write each one down.

    Args:
        budget: Maximum fraction of bad samples to replace before failing.
        quarantine: JSONL file that gets a line for each replaced sample; with several ranks each
            adds its number to the name. None means ``quarantine.jsonl`` in the working directory;
            if that cannot be written, there is a warning, and the samples are listed in
            ``loader.quarantined`` alone.

    Raises:
        OptionError: ``budget`` is no fraction.
    """

    budget: float = 0.001
    quarantine: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Check the budget."""
        if not 0 <= self.budget <= 1:
            raise OptionError(f"budget must be a fraction from 0 to 1, found {self.budget}")


@dataclass(frozen=True)
class Ranks:
    """Which of the processes that train together this one is.

    Args:
        rank: This rank, from 0.
        world_size: Number of ranks.

    Raises:
        OptionError: The two do not fit.
    """

    rank: int
    world_size: int

    def __post_init__(self) -> None:
        """Check that they fit."""
        if not 0 <= self.rank < self.world_size:
            raise OptionError(
                f"rank must lie in [0, world_size), found {self.rank} of {self.world_size}"
            )

    @classmethod
    def current(cls) -> Self:
        """torch.distributed's if that is initialised, else 0 of 1."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return cls(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return cls(0, 1)

    def check_current(self) -> None:
        """Refuse to continue as another rank than torch.distributed has by now.

        Raises:
            OptionError: It was initialised after this was found: every rank would get all samples.
        """
        now = Ranks.current()
        if now.world_size > 1 and now != self:
            raise OptionError(
                f"this loader was made as rank {self.rank} of {self.world_size}, and this process "
                f"is rank {now.rank} of {now.world_size}: make it after init_process_group (in "
                "Lightning, in train_dataloader), or pass ranks=fd.Ranks(rank, world_size)"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """The other options of a loader; :class:`fastdata.Loader` says what each means.

    Raises:
        OptionError: One is out of range; the message has its name and value.
    """

    batch_size: int
    crop: Crop = VALIDATION
    views: int = 1
    shuffle: Shuffle = True
    seed: int = 0
    drop_last: bool | None = None
    on_error: Replace | None = None
    device: str | torch.device | None = None
    normalize: Normalization | None = IMAGENET
    dtype: torch.dtype = torch.float32
    augment: Augment | None = None
    fields: Collection[str] = ()
    mask: str | None = None
    transform: Transform | None = None
    workers: int = 0
    threads: int | None = None
    prefetch: int = 2
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        """Check the options that no other object checks."""
        if self.views < 1:
            raise OptionError(f"views must be 1 or more, found {self.views}")
        if not self.dtype.is_floating_point:
            raise OptionError(f"dtype must be a floating-point type, found {self.dtype}")
        if not 0 <= self.workers <= MOST or (self.workers and self.transform is None):
            raise OptionError(
                f"workers must be 0, or up to {MOST} for a transform to run in, found "
                f"{self.workers}"
            )
        if self.threads is not None:
            check_count("threads", self.threads)
        if not 0 <= self.prefetch <= MOST:
            raise OptionError(f"prefetch must be from 0 to {MOST}, found {self.prefetch}")
        check_count("max_pixels", self.max_pixels, MOST_PIXELS)

    @property
    def drops_last(self) -> bool:
        """Whether an incomplete last global batch is left out."""
        return bool(self.shuffle) if self.drop_last is None else self.drop_last

    # looked up after the data set was opened, whose errors are the ones to see first
    @cached_property
    def target(self) -> torch.device:
        """The device that batches go to."""
        return usable_device("cpu" if self.device is None else self.device)

    @property
    def statistics(self) -> Normalization | None:
        """What images are normalised with; None leaves them uint8."""
        return None if self.device is None else self.normalize

    @cached_property
    def decoding_threads(self) -> int:
        """How many threads decode."""
        return self.threads or resources.decode_threads()


def usable_device(device: str | torch.device) -> torch.device:
    """The device as torch has it, with its index.

    Raises:
        OptionError: This machine lacks it, or batches cannot be brought there.
    """
    count = torch.cuda.device_count()
    here = f"here are: cpu{''.join(f', cuda:{index}' for index in range(count))}"
    try:
        # only an allocation finds out whether the device is there, and fills in its index
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise OptionError(
            f"device {str(device)!r} cannot be used, {here} ({brief(error)})"
        ) from error
    if found.type not in ("cpu", "cuda"):
        raise OptionError(f"device {str(device)!r}: batches go to cpu or cuda, {here}")
    return found
