"""Images that no loader reads fast, coded to PNG, so that a packed data set holds none of them."""

import io
from typing import Any

from fastdata.converters.reductions import FIRST_FRAME, LESS_DEPTH, NO_ALPHA, STRETCHED
from fastdata.errors import DecodeError
from fastdata.limits import MAX_PIXELS
from fastdata.pillow_images import FORMATS, depth, needs_pillow, open_image, sniff, to_rgb
from fastdata.probe import probe

_ORIENTATION = 274


def readable(data: bytes, name: str, *, keep: bool = False) -> tuple[bytes, tuple[str, ...]]:
    """An image as a loader reads it: its own bytes, or those of a PNG with its pixels.

    Args:
        data: The whole file.
        name: The file's name, for formats that do not say in their bytes what they are.
        keep: Keep the bytes of what a loader reads by Pillow, if slowly.

    Returns:
        The image, and what was done that is worth knowing.

    Raises:
        DecodeError: It is no image, or is damaged, or Pillow is needed and missing.
    """
    try:
        probe(data)
    except DecodeError:
        kind = sniff(data[:64], name)
        if kind is None:
            raise
    else:
        kind = None if keep else needs_pillow(data)
        if kind is None:
            return data, ()
    return to_png(data, kind)


def to_png(data: bytes, kind: str, max_pixels: int = MAX_PIXELS) -> tuple[bytes, tuple[str, ...]]:
    """Decode an image by Pillow, and code it to PNG: 8 bits, RGB, or gray where it is gray.

    An EXIF orientation that Pillow did not apply goes along.

    Args:
        data: The whole file.
        kind: One of :data:`fastdata.pillow_images.FORMATS`.
        max_pixels: Most pixels that it may have.

    Returns:
        The PNG, and what was done that is worth knowing.

    Raises:
        DecodeError: Pillow is missing, cannot read it, or it is too large.
    """
    image = open_image(data, kind, max_pixels)
    pixels = to_rgb(image)
    from PIL import Image

    gray = all(bool((part == part[:, :, :1]).all()) for part in (pixels[:1], pixels))
    exif = Image.Exif()
    turn = _orientation(image)
    if turn != 1:
        exif[_ORIENTATION] = turn
    coded = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if gray else pixels).save(coded, "PNG", exif=exif)
    return coded.getvalue(), (f"{FORMATS[kind].label} coded to PNG", *_lost(image))


def _orientation(image: Any) -> int:
    if image.format == "TIFF":  # which Pillow has turned
        return 1
    try:
        turn = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 - damaged EXIF is no damage to the image
        return 1
    return turn if turn in range(1, 9) else 1


def _lost(image: Any) -> tuple[str, ...]:
    """What a loaded Pillow image has that 8 bits of RGB have not."""
    alpha = image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
    stretched = image.mode in ("I", "F") and image.format != "PPM"
    notes = {
        FIRST_FRAME: _is_animated(image),
        LESS_DEPTH: depth(image) > 8 and not stretched,
        STRETCHED: stretched,
        NO_ALPHA: alpha,
    }
    return tuple(note for note, holds in notes.items() if holds)


def _is_animated(image: Any) -> bool:
    if image.format == "PSD":  # its layers are drawn in the one picture
        return False
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # noqa: BLE001 - damage behind the first frame is none of ours
        return False
