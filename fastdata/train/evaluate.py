"""Exact accuracy over a validation set."""

from collections.abc import Iterable

import torch

from fastdata.batch.batch import Batch
from fastdata.train import ranks
from fastdata.train.step import TrainStep


@torch.no_grad()
def evaluate(step: TrainStep, batches: Iterable[Batch]) -> float:
    """Share of the valid samples that the model classifies rightly, from 0 to 1.

    Samples that only fill up a batch do not count. With several ranks, each with its part of the
    samples, it is the share among all of them, by the first rank's batch statistics; all ranks
    must call it. Averaged weights are used where there are any. The model is left in training
    mode.
    """
    tested = step.module if step.average is None else step.average.module
    ranks.take_over(tested.buffers())
    step.module.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=step.device)  # right, all; one wait at last
    for batch in batches:
        right = step.predict(batch.images).argmax(1) == batch.labels  # (N,) bool
        counts += torch.stack([(right & batch.valid).sum(), batch.valid.sum()])
    step.module.train()
    correct, seen = ranks.add_up(counts).tolist()
    return float(correct / max(1, seen))
