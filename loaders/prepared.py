"""Whether Accelerate, or a trainer that is built on it, shares samples out a second time."""

import sys

from fastdata.errors import OptionError


def check_unprepared(dataset: object, world_size: int) -> None:
    """Refuse a pass whose DataLoader went through ``Accelerator.prepare``.

    A prepared DataLoader either takes the first rank's samples for all there are, or each rank's
    own; of a data set that shares itself out already, most samples then never come.

    Args:
        dataset: The one that is iterated over, or sent to a worker that will.
        world_size: Over how many ranks it shares itself out.

    Raises:
        OptionError: It would be shared out twice.
    """
    state = sys.modules.get("accelerate.state")
    if world_size == 1 or state is None:
        return
    # what is being iterated over, by attributes that accelerate documents
    active = getattr(state.GradientState(), "active_dataloader", None)
    prepared = getattr(active, "dataset", None)
    if prepared is dataset or getattr(prepared, "dataset", None) is dataset:
        raise OptionError(
            "Accelerate shares this data set out over ranks, and so does the data set itself: do "
            "not prepare its DataLoader, or open it with rank=0, world_size=1"
        )
