"""Arguments of a loader that nothing else checks."""

import torch

from fastdata.batch.workers import Transform
from fastdata.device.slots import Layout
from fastdata.errors import OptionError
from fastdata.images.limits import MOST_PIXELS
from fastdata.system import resources
from fastdata.system.threads import MOST, check_count


def check_options(
    *,
    flip: float,
    views: int,
    on_error: str,
    dtype: torch.dtype,
    transform: Transform | None,
    workers: int,
    threads: int | None,
    prefetch: int,
    max_pixels: int,
) -> None:
    """Refuse what is out of range.

    Raises:
        OptionError: With the argument's name and what was found.
    """
    if not 0 <= flip <= 1:
        raise OptionError(f"flip is a probability from 0 to 1, found {flip}")
    if views < 1:
        raise OptionError(f"views must be 1 or more, found {views}")
    if on_error not in ("raise", "replace"):
        raise OptionError(f"on_error must be 'raise' or 'replace', found {on_error!r}")
    if not dtype.is_floating_point:
        raise OptionError(f"dtype must be a floating-point type, found {dtype}")
    if not 0 <= workers <= MOST or (workers and transform is None):
        raise OptionError(
            f"workers must be 0, or up to {MOST} for a transform to run in, found {workers}"
        )
    if threads is not None:
        check_count("threads", threads)
    if not 0 <= prefetch <= MOST:
        raise OptionError(f"prefetch must be from 0 to {MOST}, found {prefetch}")
    check_count("max_pixels", max_pixels, MOST_PIXELS)


def batch_bytes(
    layout: Layout, samples: int, *, floats: torch.dtype | None, arena: bool = False
) -> int:
    """Host memory of a batch.

    Args:
        layout: Of its buffer.
        samples: In the batch.
        floats: Type of its normalised images, where these are in host memory too.
        arena: Whether its pixels are also in memory that processes share.
    """
    height, width = layout.shape
    values = 3 * height * width * layout.views * samples
    return layout.size(samples) + values * ((floats.itemsize if floats else 0) + arena)


def check_memory(size: int, samples: int, batches: int) -> None:
    """Refuse batches for which there is no memory, before the system ends the process for them.

    Args:
        size: Bytes of a batch.
        samples: In a batch.
        batches: That are there at a time.

    Raises:
        OptionError: There is not.
    """
    there = resources.available_memory()
    if there is not None and size * batches > there:
        raise OptionError(
            f"{batches} batches of {samples} samples take {size * batches:,} bytes, {there:,} are "
            "free; choose a smaller batch_size, crop or prefetch"
        )
