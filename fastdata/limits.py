"""What an image may ask for before anything is allocated or decoded for it."""

from typing import NamedTuple

from fastdata.errors import DecodeError, OptionError

MAX_PIXELS = 178_956_970
"""Most pixels of one image: where Pillow, too, refuses instead of warning (twice its
``Image.MAX_IMAGE_PIXELS``, which is a quarter of 1 GiB at 3 bytes a pixel)."""

_MOST_PIXELS = 2**30  # OpenCV's own limit

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


def check_max_pixels(max_pixels: int) -> None:
    """Check a limit that a user gave in the place of ``MAX_PIXELS``.

    Raises:
        OptionError: It is out of range.
    """
    if not 1 <= max_pixels <= _MOST_PIXELS:
        raise OptionError(f"max_pixels must be from 1 to {_MOST_PIXELS}, found {max_pixels}")


def check_pixels(width: int, height: int, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a size from a header before anyone allocates memory for it.

    Raises:
        DecodeError: The image is empty or larger than ``max_pixels``.
    """
    if width < 1 or height < 1:
        raise DecodeError(f"an image of {width}x{height} pixels holds nothing")
    if width * height > max_pixels:
        raise DecodeError(f"{width}x{height} pixels, over the limit of {max_pixels}")
