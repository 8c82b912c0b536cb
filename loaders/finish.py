"""From what arrived on the device to what the user gets."""

from dataclasses import dataclass
from typing import TypeGuard

import torch

from fastdata.batch.batch import Augment, Batch
from fastdata.batch.source import Source
from fastdata.device.transfer import Arrived
from fastdata.errors import OptionError
from fastdata.loaders.pipeline import Planned


@dataclass(frozen=True)
class Finish:
    """Makes batches, in the thread and stream of whoever asks for them.

    Attributes:
        source: Knows the samples' keys.
        views: Views of each sample.
        augment: What the user does to each batch.
    """

    source: Source
    views: int
    augment: Augment | None

    def __call__(self, planned: Planned, arrived: Arrived) -> Batch:
        """One batch.

        Raises:
            OptionError: ``augment`` does not return two tensors.
        """
        images, labels, valid, masks, fields = arrived
        if self.augment is not None:
            made: object = self.augment(images, labels)
            if not _is_pair(made):
                raise OptionError(
                    f"augment must return (images, labels), two tensors, found {type(made)}"
                )
            images, labels = made
        return Batch(
            images,
            labels,
            planned.ids,
            valid,
            self.source.keys,
            self.views,
            masks,
            None if fields is None else fields.columns,
            None if fields is None else fields.crops,
        )


def _is_pair(made: object) -> TypeGuard[tuple[torch.Tensor, torch.Tensor]]:
    """Whether these are two tensors; torchvision may give a list."""
    return (
        isinstance(made, tuple | list)
        and len(made) == 2
        and all(isinstance(tensor, torch.Tensor) for tensor in made)
    )
