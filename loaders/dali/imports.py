"""NVIDIA DALI, if it is there and of a version that was tried."""

import importlib
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from fastdata.errors import MissingExtraError

OLDEST = (2, 2)
"""First version whose ``fn.decoders`` are nvImageCodec's: they can leave EXIF alone."""
PACKAGES = ("nvidia-dali-cuda130", "nvidia-dali-cuda120")

_INSTALL = "pip install 'fastdata[dali]', or 'fastdata[dali-cuda13]' for drivers of CUDA 13"


class DALI(NamedTuple):
    """Modules of DALI; it has no complete annotations."""

    fn: Any
    types: Any
    pipeline: Any


def dali() -> DALI:
    """Import it; nothing of fastdata does before a ``DALILoader`` is made.

    Raises:
        MissingExtraError: It is not installed, too old, or does not load on this machine.
    """
    found = installed()
    if found is None:
        raise MissingExtraError(f"fd.DALILoader needs NVIDIA DALI: {_INSTALL}")
    package, text = found
    numbers = tuple(map(int, re.findall(r"\d+", text)[:2]))
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise MissingExtraError(
            f"fd.DALILoader needs DALI {oldest} or later, found {package} {text}: {_INSTALL}"
        )
    try:
        names = ("fn", "types", "pipeline")
        return DALI(*(importlib.import_module(f"nvidia.dali.{name}") for name in names))
    except (ImportError, OSError) as error:  # a shared library that is missing, most often
        raise MissingExtraError(f"{package} {text} does not load here: {error}") from error


def installed() -> tuple[str, str] | None:
    """Name and version of the package, without importing it; None where there is none."""
    for package in PACKAGES:
        try:
            return package, version(package)
        except PackageNotFoundError:
            continue
    return None
