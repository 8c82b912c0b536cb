"""Limits that a header must keep before anything is allocated or decoded for its image."""

from typing import NamedTuple

from fastdata.errors import DecodeError

MAX_PIXELS = 178_956_970
"""Most pixels of one image: where Pillow refuses it, too (twice ``Image.MAX_IMAGE_PIXELS``, which
is a quarter of 1 GiB at 3 bytes a pixel)."""

MOST_PIXELS = 2**30
"""Most that a user may set instead of ``MAX_PIXELS``: OpenCV's own limit."""

MAX_SCANS = 100
"""Most scans of one JPEG, as many as cjpeg writes. A decoder visits every pixel once for each scan,
however few bytes the scan has: 2,000 empty ones in a file of 321 KB took over 17 s."""

MAX_SEGMENTS = 4096
"""Most marker segments of one JPEG, which also limits their bytes to 256 MiB. The 255 pieces of the
largest ICC profile and six segments for each of ``MAX_SCANS`` scans are fewer than 1,000."""


class JpegLimits(NamedTuple):
    """What one JPEG may ask for, as the native core takes it."""

    max_pixels: int = MAX_PIXELS
    max_scans: int = MAX_SCANS
    max_segments: int = MAX_SEGMENTS


def check_pixels(width: int, height: int, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a size that a header states before memory is allocated for it.

    Raises:
        DecodeError: The image is empty or larger than ``max_pixels``.
    """
    if width < 1 or height < 1:
        raise DecodeError(f"an image of {width}x{height} pixels holds nothing")
    if width * height > max_pixels:
        raise DecodeError(f"{width}x{height} pixels, over the limit of {max_pixels}")
