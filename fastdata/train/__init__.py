"""The reference training run and its figures."""

from fastdata.train.loop import Progress
from fastdata.train.recipe import Recipe, Setup
from fastdata.train.results import Ceiling, EpochResult, Round, TrainReport
from fastdata.train.run import train
from fastdata.train.step import TrainStep

__all__ = [
    "Ceiling",
    "EpochResult",
    "Progress",
    "Recipe",
    "Round",
    "Setup",
    "TrainReport",
    "TrainStep",
    "train",
]
