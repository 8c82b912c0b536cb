"""JPEGs coded anew, in runs that can be decoded on their own; pixels stay the same to the bit."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from fastdata import native
from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS, JpegLimits
from fastdata.images.probe import decoding_bytes, probe
from fastdata.system.resources import BUDGET, never

RUN_PIXELS = 32
"""Width of a run: shorter ones cost bytes, longer ones make crops decode more than they need."""

WARNINGS = "JPEG with harmless warnings"
LEFT_OVER = "bytes left over in JPEG data"

_HAS_RUNS = "has restart runs already"
_END = b"\xff\xd9"


class Transcoded(NamedTuple):
    """A JPEG as it is to be stored.

    Attributes:
        image: Its bytes.
        kept: Why these are the file's own; empty where it was coded anew, or had such runs already.
        notes: ``WARNINGS`` where libjpeg warns of the file, though of no damage: bytes between
            segments, no end, segments of an unknown kind. ``LEFT_OVER`` where the data of a scan
            are longer than its pixels need: padding, or damage that no decoder can tell from it.
            What was coded anew has none of that.
    """

    image: bytes
    kept: str
    notes: tuple[str, ...] = ()


def transcode(jpeg: bytes, run_pixels: int, max_pixels: int = MAX_PIXELS) -> Transcoded:
    """Code a JPEG with restart runs of about ``run_pixels`` pixels and Huffman tables of its own.

    Args:
        jpeg: The whole file.
        run_pixels: Wanted width of a run in pixels.
        max_pixels: Refuse a larger image.

    Raises:
        DecodeError: Some part of the image is damaged.
    """
    core = native.load()
    if core is None:
        return Transcoded(jpeg, "the native core was not built")
    limits = JpegLimits(max_pixels)
    coded, kept, warned, left_over = core.transcode_jpeg(jpeg, run_pixels, limits)
    notes = (WARNINGS,) * warned + (LEFT_OVER,) * left_over
    if coded is None:
        return Transcoded(jpeg, "" if kept == _HAS_RUNS else kept, notes)
    return Transcoded(coded, "", notes)


def salvage(
    jpeg: bytes, max_pixels: int = MAX_PIXELS, stopped: Callable[[], bool] = never
) -> bytes | None:
    """What libjpeg-turbo makes of a damaged JPEG, gray where data are missing, as a whole image.

    Args:
        jpeg: The whole file.
        max_pixels: Refuse a larger image.
        stopped: Whether it is not wanted any more, while it waits for memory.

    Returns:
        A JPEG of the same pixels where there is one, else a PNG; None where libjpeg-turbo makes no
        picture of it either.

    Raises:
        StoppedError: It is not wanted any more.
    """
    closed = jpeg + _END
    try:
        info = probe(closed, max_pixels)  # the limits hold for damaged images as well
        with BUDGET.lease(2 * decoding_bytes(info, len(closed)) + 4 * len(closed), stopped):
            return _salvaged(closed, max_pixels)
    except DecodeError:
        return None


def _salvaged(closed: bytes, max_pixels: int) -> bytes | None:
    from fastdata.images.pixels import decode

    pixels = decode(closed)
    core = native.load()
    if core is not None:
        limits = JpegLimits(max_pixels)
        with suppress(DecodeError):
            coded, *_ = core.transcode_jpeg(closed, RUN_PIXELS, limits, damaged=True)
            # Where scans are missing, libjpeg smooths what it has, which coefficients cannot say.
            if coded is not None and np.array_equal(decode(coded), pixels):
                return bytes(coded)
    import cv2

    done, image = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    return image.tobytes() if done else None
