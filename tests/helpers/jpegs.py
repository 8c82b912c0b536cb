"""JPEGs of every kind, for the tests of the native core and as seeds of ``make asan``."""

import base64
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
Maker = Callable[[int, int], bytes]

# 24x16 pixels, made with libjpeg-turbo's arith_code: neither Pillow nor OpenCV can write this kind.
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZG"
    "NywtQFdBRkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT09PT09PT09PT09PT09PT09PT0//yQARCAAQABgDASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIR"
    "AxEAPwD/AGjhM0YCQ+HNYhMh64pJKSVCcCICENWGVk2fx1MyMgAKEucaGLr+CP4LfDXk8mhc0k9SgWmKudiVwOz/"
    "ABZES4oopR61Gp312eljKUGnxRc4tfp/9ZDrqPtUODr4Cf/Z"
)

SAMPLINGS = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
CODINGS = {
    "baseline": [],
    "optimised": [cv2.IMWRITE_JPEG_OPTIMIZE, 1, cv2.IMWRITE_JPEG_QUALITY, 98],
    "progressive": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1],
    "restart 1": [cv2.IMWRITE_JPEG_RST_INTERVAL, 1],
    "restart 5": [cv2.IMWRITE_JPEG_RST_INTERVAL, 5],
}


def scene(width: int, height: int, channels: int = 3) -> Pixels:
    """(height, width, channels): waves with noise, which give coefficients of every size."""
    rng = np.random.default_rng([width, height])
    y, x = np.mgrid[:height, :width]
    planes = [
        128 + 60 * np.sin(x / (5 + 3 * k) + k) + 50 * np.cos(y / (4 + 2 * k))
        for k in range(channels)
    ]
    noise = rng.normal(0, 18, (height, width, channels))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def opencv(pixels: Pixels, *options: int) -> bytes:
    """Pixels, whose channels OpenCV takes for BGR, as a JPEG."""
    done, data = cv2.imencode(".jpg", pixels, options)
    assert done
    return data.tobytes()


def pillow(pixels: Pixels, **options: Any) -> bytes:
    """Pixels of 1, 3 or 4 (CMYK) channels as a JPEG."""
    height, width, channels = pixels.shape
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[channels]
    buffer = io.BytesIO()
    Image.frombytes(mode, (width, height), pixels.tobytes()).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def decoded(data: bytes) -> Pixels:
    """Pillow's pixels, the oracle."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def ycck(data: bytes) -> bytes:
    """Take a CMYK file's components for YCCK: the Adobe segment's transform becomes 2."""
    at = data.index(b"\xff\xee\x00\x0eAdobe") + 15
    return data[:at] + b"\x02" + data[at + 1 :]


def scan_starts(data: bytes) -> list[int]:
    """Offsets of the SOS markers."""
    return [match.start() for match in re.finditer(rb"\xff\xda\x00[\x08\x0a\x0c\x0e]", data)]


def unfinished(data: bytes, scans: int) -> bytes:
    """Only the first scans of a progressive file."""
    return data[: scan_starts(data)[scans]] + b"\xff\xd9"


def eleven_blocks(width: int, height: int) -> bytes:
    """Factors 4x2, 2x2, 2x2 in a scan for each component, as 16 blocks make no MCU."""
    planes = [scene(width, height, 1)] + [scene(-(-width // 2), height, 1)] * 2
    gray = [opencv(plane) for plane in planes]
    head = gray[0]
    frame, tables, scan = (head.index(mark) for mark in (b"\xff\xc0", b"\xff\xc4", b"\xff\xda"))
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    components = bytes([1, 0x42, 0, 2, 0x22, 0, 3, 0x22, 0])
    parts = [head[:frame], b"\xff\xc0\x00\x11\x08" + size + b"\x03" + components]
    parts.append(head[tables:scan])
    for number, plane in enumerate(gray, 1):
        coded = plane[plane.index(b"\xff\xda") + 10 : -2]
        parts.append(b"\xff\xda\x00\x08\x01" + bytes([number, 0, 0, 63, 0]) + coded)
    return b"".join([*parts, b"\xff\xd9"])


def odd(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What libjpeg decodes with a warning, or without one, although it is not as JPEGs should be.

    All have the pixels of the file that they are made of: one with a JFIF segment, in three
    components or one, progressive or not.
    """
    tables, scan, body = data.index(b"\xff\xdb"), data.index(b"\xff\xda"), data[:-2]
    end, stray = b"\xff\xd9", b"\x01stray\xff\x00\x02"
    revision = data.index(b"JFIF\0") + 5
    yield "fill bytes between segments", data[:tables] + b"\xff\xff" + data[tables:]
    yield "stray bytes between segments", data[:tables] + stray + data[tables:]
    yield "stray bytes before the scan", data[:scan] + stray + data[scan:]
    yield "stray bytes behind the data", body + b"\0" + stray + end
    yield "fill bytes behind the data", body + b"\0\xff\xff\0\1" + end
    yield "segments of no length", data[:tables] + b"\xff\xe5\0\0\xff\xfe\0\1" + data[tables:]
    yield "a segment of no length behind the data", body + b"\xff\xed\0\0" + end
    yield "another JFIF revision", data[:revision] + b"\x07" + data[revision + 1 :]
    yield "bytes behind the end", data + b"\xff\xd8 another image"
    if b"\xff\xc2" not in data:
        yield "no end", body
        yield "half an end", data[:-1]
        yield "a cut segment behind the data", body + b"\xff\xe1\x40\0cut"
        zeros = scan + 5 + 2 * data[scan + 4]
        yield "a scan of no coefficients", data[:zeros] + bytes(3) + data[zeros + 3 :]
    if restart := re.search(rb"\xff\xd0", data[scan:]):
        at = scan + restart.start()
        yield "stray bytes before a restart", data[:at] + b"\x5a" + stray + data[at:]


def adobe(data: bytes, transform: int) -> bytes:
    """A file whose Adobe segment, in place of JFIF where there is none, names a transform."""
    at = data.find(b"\xff\xee\x00\x0eAdobe")
    rest = data[at + 16 :] if at > 0 else data[data.index(b"\xff\xdb") :]
    head = data[:at] if at > 0 else data[:2]
    return head + b"\xff\xee\x00\x0eAdobe\0\x64\0\0\0\0" + bytes([transform]) + rest


def without_huffman_tables(data: bytes) -> bytes:
    """As the frames of Motion JPEG are, whose tables are the standard's."""
    while (at := data.find(b"\xff\xc4")) > 0:
        data = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
    return data


def _maker(sampling: int, coding: list[int]) -> Maker:
    options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, *coding]
    return lambda width, height: opencv(scene(width, height), *options)


def _makers() -> Iterator[tuple[str, Maker]]:
    for sampling, factors in SAMPLINGS.items():
        for coding, options in CODINGS.items():
            yield f"{sampling} {coding}", _maker(factors, options)
    yield "rgb", lambda w, h: pillow(scene(w, h), keep_rgb=True)
    yield "gray", lambda w, h: opencv(scene(w, h, 1))
    yield "gray progressive", lambda w, h: pillow(scene(w, h, 1), progressive=True)
    yield "gray restart", lambda w, h: pillow(scene(w, h, 1), restart_marker_blocks=2)
    yield "cmyk", lambda w, h: pillow(scene(w, h, 4))
    yield "cmyk 4:2:0", lambda w, h: pillow(scene(w, h, 4), subsampling="4:2:0")
    yield "ycck", lambda w, h: ycck(pillow(scene(w, h, 4)))
    yield "ycck progressive", lambda w, h: ycck(pillow(scene(w, h, 4), progressive=True))
    yield "eleven blocks", eleven_blocks


MAKERS = dict(_makers())
"""What makes a file of a width and a height, by kind."""
