"""What a run tells while it goes on."""

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """Where a run is.

    Attributes:
        phase: ``"warm-up"``, ``"train"``, ``"validate"`` or ``"ceiling"``.
        epoch: From 0.
        done: Steps done in this epoch, or rounds of the ceiling.
        total: Steps of this epoch, or rounds.
        loss: Mean loss of the epoch as it was last read; None before.
    """

    phase: str
    epoch: int
    done: int
    total: int
    loss: float | None = None


ProgressCallback = Callable[[Progress], None]
