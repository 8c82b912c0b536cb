"""Functions that worker processes can import."""

import os
import random
import time
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def invert(image: Pixels, seed: int) -> Pixels:
    """The negative."""
    return 255 - image


def stamp(image: Pixels, seed: int) -> Pixels:
    """The seed's low bits in the first pixel, in place."""
    image[0, 0] = [seed & 0xFF, seed >> 8 & 0xFF, seed >> 16 & 0xFF]
    return image


def draw(image: Pixels, seed: int) -> Pixels:
    """Numbers of Python's and numpy's global generators in the first pixels."""
    image[0, 0] = random.randrange(256)  # noqa: S311
    image[0, 1] = np.random.randint(256)  # noqa: NPY002
    return image


def fail_on_dark(image: Pixels, seed: int) -> Pixels:
    """An error for the darkest image."""
    if image.mean() < 5:
        raise ZeroDivisionError("too dark")
    return image


def halve(image: Pixels, seed: int) -> Pixels:
    """Another shape."""
    return image[::2]


def die(image: Pixels, seed: int) -> Any:
    """The end of the process."""
    os._exit(7)


def sleep(image: Pixels, seed: int) -> Pixels:
    """A function that does not return in time."""
    time.sleep(60)
    return image
