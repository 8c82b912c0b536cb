"""The reference training run and its figures."""

from fastdata.train.results import Ceiling, EpochResult, Round, TrainReport
from fastdata.train.run import Progress, train

__all__ = ["Ceiling", "EpochResult", "Progress", "Round", "TrainReport", "train"]
