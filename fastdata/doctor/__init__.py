"""Find the bottleneck of training on a data set, and suggest a fix."""

from fastdata.doctor.examination import STEPS, examine
from fastdata.doctor.results import Diagnosis, Measured

__all__ = ["STEPS", "Diagnosis", "Measured", "examine"]
