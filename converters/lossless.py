"""Lossless JPEGs, which no loader decodes, as PNG: by Pillow, whose libjpeg-turbo may be newer."""

import io

from fastdata.jpeg_header import is_lossless
from fastdata.limits import check_pixels

NOTE = "lossless JPEG coded to PNG"


def lossless_to_png(data: bytes) -> bytes | None:
    """The same pixels as a PNG; None where it is no lossless JPEG that Pillow reads.

    Raises:
        DecodeError: It is over the limit of pixels.
    """
    if not data.startswith(b"\xff\xd8\xff") or not is_lossless(data):
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    coded = io.BytesIO()
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            check_pixels(*image.size)
            pixels = image if image.mode in ("L", "RGB") else image.convert("RGB")
            pixels.save(coded, "PNG")
    except (OSError, SyntaxError, ValueError):
        return None
    return coded.getvalue()
