"""JPEGs coded anew, in runs that can be decoded on their own; pixels stay the same to the bit."""

from fastdata.limits import MAX_PIXELS, MAX_SCANS, MAX_SEGMENTS
from fastdata.probe import core

RUN_PIXELS = 32
"""Width of a run: shorter ones cost bytes, longer ones make crops decode more than they need."""

_HAS_RUNS = "has restart runs already"


def transcode(jpeg: bytes, run_pixels: int, max_pixels: int = MAX_PIXELS) -> tuple[bytes, str]:
    """Code a JPEG with restart runs of about ``run_pixels`` pixels and Huffman tables of its own.

    Args:
        jpeg: The whole file.
        run_pixels: Wanted width of a run in pixels.
        max_pixels: Refuse a larger image.

    Returns:
        The JPEG to store, and why it is stored as it is; the reason is empty where it was coded
        anew, or had such runs already.

    Raises:
        DecodeError: Some part of the image is damaged.
    """
    native = core()
    if native is None:
        return jpeg, "the native core was not built"
    coded, kept = native.transcode_jpeg(jpeg, run_pixels, max_pixels, MAX_SCANS, MAX_SEGMENTS)
    if coded is None:
        return jpeg, "" if kept == _HAS_RUNS else kept
    return coded, ""
