"""The ways to get from encoded images and crops to pixels that ``decode.py`` measures.

A decoder is made for a list of tasks and an output size; called with a task's number, it returns
its crops, each scaled to a square, (size, size, 3) uint8. Libraries that handle one image at a time
are called in a loop.
"""

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
from native import NEEDS, MemoryDecoder, packed

from fastdata.plan.crop import CropPlan

Pixels = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]  # x, y, width, height
Decode = Callable[[int], Sequence[Pixels]]


class Task(NamedTuple):
    """The work of one turn: N images, and a crop of each."""

    images: list[bytes]
    plan: CropPlan


class Decoder(NamedTuple):
    """A way to decode.

    Attributes:
        about: What it does, in a few words.
        needs: Modules that must be installed.
        make: Returns the function for some tasks and an output size.
    """

    about: str
    needs: tuple[str, ...]
    make: Callable[[Sequence[Task], int], Decode]


def _native(
    tasks: Sequence[Task], size: int, *, libjpeg: bool = False, checked: bool = False
) -> Decode:
    decoder = MemoryDecoder(threads=1, libjpeg=libjpeg)
    crcs = [np.array([google_crc32c.value(image) for image in t.images], np.uint32) for t in tasks]
    batches = [decoder.load(task.images) for task in tasks]
    most = max(len(task.images) for task in tasks)
    out = np.empty((most, size, size, 3), np.uint8)  # one for all, as a loader reuses its batches

    def decode(number: int) -> Sequence[Pixels]:
        crops = out[: len(tasks[number].images)]
        known = crcs[number] if checked else None
        decoder.finish(decoder.start(batches[number], tasks[number].plan, crops, known))
        return list(crops)

    return decode


def _native_packed(tasks: Sequence[Task], size: int, **chosen: bool) -> Decode:
    known = {data: packed(data) for data in {data for task in tasks for data in task.images}}
    tasks = [Task([known[data] for data in task.images], task.plan) for task in tasks]
    return _native(tasks, size, **chosen)


def _pillow(tasks: Sequence[Task], size: int) -> Decode:
    from PIL import Image

    def decode(data: bytes, box: Box) -> Pixels:
        x, y, width, height = box
        image = Image.open(BytesIO(data)).convert("RGB").crop((x, y, x + width, y + height))
        return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))

    return _each(tasks, decode)


def _opencv(tasks: Sequence[Task], size: int) -> Decode:
    import cv2

    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION

    def decode(data: bytes, box: Box) -> Pixels:
        image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        return _linear(_crop(image, box), size)

    return _each(tasks, decode)


def _simplejpeg_opencv(tasks: Sequence[Task], size: int) -> Decode:
    import simplejpeg

    def decode(data: bytes, box: Box) -> Pixels:
        return _linear(_crop(simplejpeg.decode_jpeg(data, colorspace="RGB"), box), size)

    return _each(tasks, decode)


def _simplejpeg_torch(tasks: Sequence[Task], size: int) -> Decode:
    import simplejpeg

    def decode(data: bytes, box: Box) -> Pixels:
        return _antialiased(_crop(simplejpeg.decode_jpeg(data, colorspace="RGB"), box), size)

    return _each(tasks, decode)


def _torchvision(tasks: Sequence[Task], size: int) -> Decode:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2.functional import resized_crop

    def decode(data: bytes, box: Box) -> Pixels:
        # bytearray, since torch warns of buffers that cannot be written to; 10 us for 100 KB
        image = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        x, y, width, height = box
        region = resized_crop(image, y, x, height, width, [size, size], antialias=True)
        return np.asarray(region.numpy().transpose(1, 2, 0))

    return _each(tasks, decode)


def _fallback(tasks: Sequence[Task], size: int) -> Decode:
    from fastdata.batch.decode import decode_crop

    def decode(number: int) -> Sequence[Pixels]:
        images, plan = tasks[number]
        out = np.empty((len(images), size, size, 3), np.uint8)
        for row, data in enumerate(images):
            decode_crop(data, plan, row, out[row])
        return list(out)

    return decode


def _each(tasks: Sequence[Task], decode_one: Callable[[bytes, Box], Pixels]) -> Decode:
    """Turn a decoder of one image into one of many."""
    boxes = [task.plan.source.tolist() for task in tasks]

    def decode(number: int) -> Sequence[Pixels]:
        pairs = zip(tasks[number].images, boxes[number], strict=True)
        return [decode_one(data, box) for data, box in pairs]

    return decode


def _crop(image: Pixels, box: Box) -> Pixels:
    x, y, width, height = box
    return image[y : y + height, x : x + width]


def _linear(region: Pixels, size: int) -> Pixels:
    import cv2

    return np.asarray(cv2.resize(region, (size, size), interpolation=cv2.INTER_LINEAR), np.uint8)


def _antialiased(region: Pixels, size: int) -> Pixels:
    import torch
    from torch.nn.functional import interpolate

    # torch is quickest on a dense channels_last tensor
    dense = torch.from_numpy(np.ascontiguousarray(region)).permute(2, 0, 1)[None]
    scaled = interpolate(dense, (size, size), mode="bilinear", antialias=True)
    return np.asarray(scaled[0].permute(1, 2, 0).numpy())


DECODERS = {
    "pillow": Decoder("decode, crop, BILINEAR resize (antialiased)", ("PIL",), _pillow),
    "opencv": Decoder("imdecode, crop, INTER_LINEAR (aliases)", (), _opencv),
    "simplejpeg+opencv": Decoder(
        "decode_jpeg, crop, INTER_LINEAR (aliases)", ("simplejpeg",), _simplejpeg_opencv
    ),
    "simplejpeg+torch": Decoder(
        "decode_jpeg, crop, torch's uint8 resize (antialiased)", ("simplejpeg",), _simplejpeg_torch
    ),
    "torchvision": Decoder(
        "decode_jpeg, v2 resized_crop of uint8 (antialiased)", ("torchvision",), _torchvision
    ),
    "fastdata-opencv": Decoder("fastdata without its native core (antialiased)", (), _fallback),
    "fastdata-libjpeg": Decoder(
        "native core with libjpeg-turbo's decoder, JPEGs as they are (antialiased)",
        NEEDS,
        partial(_native, libjpeg=True),
    ),
    "fastdata-libjpeg-runs": Decoder(
        "native core with libjpeg-turbo's decoder, JPEGs as packed (antialiased)",
        NEEDS,
        partial(_native_packed, libjpeg=True),
    ),
    "fastdata-runs-checked": Decoder(
        "native core, JPEGs as packed, each compared with its CRC-32C first (antialiased)",
        NEEDS,
        partial(_native_packed, checked=True),
    ),
    "fastdata": Decoder("native core, JPEGs as they are (antialiased)", NEEDS, _native),
    "fastdata-runs": Decoder("native core, JPEGs as packed (antialiased)", NEEDS, _native_packed),
}
