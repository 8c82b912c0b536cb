"""Exact accuracy over a validation set."""

from collections.abc import Iterable

import torch

from fastdata.batch import Batch
from fastdata.train.step import TrainStep


@torch.no_grad()
def evaluate(step: TrainStep, batches: Iterable[Batch]) -> float:
    """Share of the valid samples that the model classifies rightly, from 0 to 1.

    Samples that only fill up a batch do not count. The model is left in training mode.
    """
    step.module.eval()
    correct: torch.Tensor | int = 0  # summed on the device: one wait at the end, not one a batch
    seen: torch.Tensor | int = 0
    for batch in batches:
        right = step.scores(batch.images).argmax(1) == batch.labels  # (N,) bool
        correct = correct + (right & batch.valid).sum()
        seen = seen + batch.valid.sum()
    step.module.train()
    return int(correct) / max(1, int(seen))
