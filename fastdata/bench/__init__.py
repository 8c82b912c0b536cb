"""How fast training is, rung by rung up to the ceiling: ``fastdata bench``."""

from fastdata.bench.ceiling import bench_ceiling
from fastdata.bench.results import CeilingReport, ColdPass, Figures, LadderReport, RungResult
from fastdata.bench.run import ladder
from fastdata.bench.rungs import LadderSettings, Rung, rungs

__all__ = [
    "CeilingReport",
    "ColdPass",
    "Figures",
    "LadderReport",
    "LadderSettings",
    "Rung",
    "RungResult",
    "bench_ceiling",
    "ladder",
    "rungs",
]
