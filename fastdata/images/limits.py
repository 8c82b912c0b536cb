"""What an image may ask for before anything is allocated or decoded for it."""

from typing import NamedTuple

from fastdata.errors import DecodeError

MAX_PIXELS = 178_956_970
"""Most pixels of one image: where Pillow, too, refuses instead of warning (twice its
``Image.MAX_IMAGE_PIXELS``, which is a quarter of 1 GiB at 3 bytes a pixel)."""

MOST_PIXELS = 2**30
"""Most that a user may ask for in the place of ``MAX_PIXELS``: OpenCV's own limit."""

MAX_SCANS = 100
"""Most scans of one JPEG: cjpeg accepts no script with more. A decoder visits every pixel once for
each scan, however few bytes that scan has: 2,000 empty ones cost over 17 s in a 321 KB file."""

MAX_SEGMENTS = 4096
"""Most marker segments of one JPEG, which bounds their bytes to 256 MiB as well. The 255 pieces of
the largest ICC profile and six segments for each of ``MAX_SCANS`` scans need fewer than 1,000."""


class JpegLimits(NamedTuple):
    """What one JPEG may ask for, as the native core takes it."""

    max_pixels: int = MAX_PIXELS
    max_scans: int = MAX_SCANS
    max_segments: int = MAX_SEGMENTS


def check_pixels(width: int, height: int, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a size from a header before anyone allocates memory for it.

    Raises:
        DecodeError: The image is empty or larger than ``max_pixels``.
    """
    if width < 1 or height < 1:
        raise DecodeError(f"an image of {width}x{height} pixels holds nothing")
    if width * height > max_pixels:
        raise DecodeError(f"{width}x{height} pixels, over the limit of {max_pixels}")
