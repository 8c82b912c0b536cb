"""Encoded images to pixels, wherever that is done at load: whole ones, and crops.

Every image is probed first: its bytes, not a name or a catalog, decide its format, and whether it
keeps the limits; unknown formats are refused. The native core decodes JPEGs, and of these only the
part that a crop needs; other formats, and everything where the core is missing, go to OpenCV.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from fastdata import native
from fastdata.batch.resize import resize_window
from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS, JpegLimits
from fastdata.images.pixels import Image
from fastdata.images.pixels import decode as decode_by_opencv
from fastdata.images.probe import ImageInfo, decoding_bytes, probe
from fastdata.plan.crop import CropPlan
from fastdata.system.resources import BUDGET, never

_CORE_MOST_SIDE = 65535  # longest side that the core resizes: a JPEG's longest


def decode(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Decode a whole image.

    Args:
        data: An encoded image.
        max_pixels: Refuse a larger image.

    Returns:
        (H, W, 3) uint8 RGB, owned by the caller; see :func:`fastdata.images.pixels.decode`.

    Raises:
        DecodeError: The bytes are no image of a known format, are damaged, or over a limit; or
            there is no memory for the pixels.
    """
    info = probe(data, max_pixels)
    with memory_for(info, data):
        if info.format != "jpeg" or native.load() is None:
            return _pixels(data, info)
        out = np.empty((info.height, info.width, 3), np.uint8)
        size = np.array([[info.width, info.height]], np.int64)
        zeros = np.zeros_like(size)
        whole = CropPlan(size, np.hstack([zeros, size]), size, zeros, np.zeros(1, np.bool_))
        _crop_jpeg(data, whole, 0, out, max_pixels)
        return out


def decode_crop(
    data: bytes,
    plan: CropPlan,
    row: int,
    out: Image,
    *,
    max_pixels: int = MAX_PIXELS,
    stopped: Callable[[], bool] = never,
) -> None:
    """Decode one image; crop, resize and flip it into its place in a batch.

    Args:
        data: An encoded image.
        plan: Crops of a batch.
        row: Which of them to apply.
        out: (h, w, 3) uint8, C-contiguous; every pixel is written.
        max_pixels: Refuse a larger image.
        stopped: Asked while it waits for memory: whether nobody wants the image any more.

    Raises:
        DecodeError: As :func:`decode`; or the plan is for an image of another size.
        StoppedError: ``stopped`` said so.
    """
    info = probe(data, max_pixels)
    width, height = plan.size[row].tolist()
    check_size(info, width, height)
    with memory_for(info, data, stopped):
        if info.format == "jpeg" and native.load() is not None:
            _crop_jpeg(data, plan, row, out, max_pixels)
        else:
            _crop_pixels(_pixels(data, info), plan, row, out)


def cut_runs(
    data: bytes, x: int, y: int, width: int, height: int, *, max_pixels: int = MAX_PIXELS
) -> tuple[bytes, int, int]:
    """Cut a smaller JPEG out of one with restart runs; the pixels of a region stay bit-exact.

    Args:
        data: A JPEG.
        x: First column of the region, in pixels.
        y: First row.
        width: Columns.
        height: Rows.
        max_pixels: Refuse a larger image.

    Returns:
        The JPEG of the runs that the region needs, and the column and row of the image that its
        first pixel is. Without runs to leave out, and without the native core, the data as they are
        and zeros.

    Raises:
        DecodeError: The bytes are no JPEG, or the region reaches out of the image.
    """
    core = native.load()
    if core is None:
        return data, 0, 0
    limits = JpegLimits(max_pixels)
    small, left, top = core.cut_jpeg(data, x, y, x + width, y + height, limits)
    return (data if small is None else small), left, top


def check_size(info: ImageInfo, width: int, height: int) -> None:
    """Refuse an image of another size than its crop was planned for.

    Raises:
        DecodeError: It has another size.
    """
    if (info.width, info.height) != (width, height):
        raise DecodeError(
            f"its header says {info.width}x{info.height} pixels, the catalog {width}x{height}"
        )


@contextmanager
def memory_for(info: ImageInfo, data: bytes, stopped: Callable[[], bool] = never) -> Iterator[None]:
    """Hold the memory that decoding an image takes, within the context.

    Raises:
        DecodeError: There is none.
        StoppedError: As :func:`decode_crop`.
    """
    try:
        with BUDGET.lease(decoding_bytes(info, len(data)), stopped):
            yield
    except MemoryError:
        size = f"{info.width}x{info.height}"
        raise DecodeError(f"there is no memory to decode {size} pixels") from None


def _pixels(data: bytes, info: ImageInfo) -> Image:
    image = decode_by_opencv(data)
    height, width = image.shape[:2]
    # memory was leased, and the crop planned, for the size in the header
    if (width, height) != (info.width, info.height):
        raise DecodeError(
            f"its header says {info.width}x{info.height} pixels, found {width}x{height}"
        )
    return image


def _crop_jpeg(data: bytes, plan: CropPlan, row: int, out: Image, max_pixels: int) -> None:
    core = native.load()
    assert core is not None
    core.decode_crop(data, plan, row, out, JpegLimits(max_pixels))


def _crop_pixels(image: Image, plan: CropPlan, row: int, out: Image) -> None:
    """Cut, resize and flip decoded pixels; the core's resize is the same as for JPEGs."""
    x, y, width, height = plan.source[row].tolist()
    # the core first: a data set with JPEGs and PNGs should have one resize filter
    core = native.load()
    if core is not None and max(width, height) <= _CORE_MOST_SIDE:
        core.resize_crop(np.ascontiguousarray(image), plan, row, out)
        return
    region = image[y : y + height, x : x + width]
    (scaled_width, scaled_height), (left, top) = plan.scaled[row].tolist(), plan.cut[row].tolist()
    resize_window(region, (scaled_width, scaled_height), (left, top), out)
    if plan.flip[row]:
        out[:] = out[:, ::-1].copy()
