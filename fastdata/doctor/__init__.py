"""What limits training on a data set, measured, and which setting to change."""

from fastdata.doctor.examination import STEPS, examine
from fastdata.doctor.results import Diagnosis, Measured

__all__ = ["STEPS", "Diagnosis", "Measured", "examine"]
