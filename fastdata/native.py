"""The way to the native core, which an installation may lack.

It is missing where there was no C++ compiler, no Python.h or no libjpeg-turbo to build it with.
"""

import functools
import importlib
import warnings
from pathlib import Path
from types import ModuleType


@functools.cache
def load() -> ModuleType | None:
    """Return the native core, or None with a warning where it was not built."""
    try:
        return importlib.import_module("fastdata._core")
    except ImportError:
        warnings.warn(
            f"fastdata's native core is missing from {Path(__file__).parent}: OpenCV decodes, "
            "whole images and slower. To build it takes a C++ compiler and libjpeg-turbo; a source "
            "tree as the working directory hides an installed wheel",
            RuntimeWarning,
            stacklevel=1,  # this place, by which Python knows that it was said
        )
        return None


def decoder() -> str:
    """What decodes JPEGs here, for results: ``"own"``, the native core's, or ``"OpenCV"``."""
    return "OpenCV" if load() is None else "own"
