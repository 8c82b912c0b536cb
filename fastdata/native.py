"""Loads the native core, which is missing where pip had no compiler, Python.h or libjpeg-turbo."""

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
            f"fastdata's native core is missing from {Path(__file__).parent}: OpenCV decodes "
            "instead, slower and always whole images. Building it needs a C++ compiler and "
            "libjpeg-turbo; a source tree as the working directory hides an installed wheel",
            RuntimeWarning,
            stacklevel=1,  # this place, by which Python knows that it was said
        )
        return None


def decoder() -> str:
    """What decodes JPEGs here, for results: ``"own"``, the native core's, or ``"OpenCV"``."""
    return "OpenCV" if load() is None else "own"
