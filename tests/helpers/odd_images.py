"""Image files of kinds that Pillow reads and does not write, byte by byte."""

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

WIDTH, HEIGHT = 29, 21
Bytes = npt.NDArray[np.uint8]


def noise(*shape: int, below: int = 256) -> Bytes:
    """Pixels, always the same for a shape."""
    return np.random.default_rng(sum(shape)).integers(0, below, shape, np.uint8)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """A file as Pillow writes it."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


_ADAM7 = [
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
]


def png(colour: int, bits: int, *, interlaced: bool = False, extra: bytes = b"") -> bytes:
    """A PNG of noise.

    Args:
        colour: Its colour type.
        bits: Of a sample.
        interlaced: Whether its rows come in the seven passes of Adam7.
        extra: Chunks before the pixels.
    """
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    values = noise(HEIGHT, WIDTH, samples * bits // 8 if bits >= 8 else 1, below=1 << min(bits, 8))
    rows = b""
    for x, y, step_x, step_y in _ADAM7 if interlaced else [(0, 0, 1, 1)]:
        for line in values[y::step_y, x::step_x] if x < WIDTH else ():
            rows += b"\0" + _packed(line, bits)
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, colour, 0, 0, interlaced)
    palette = _chunk(b"PLTE", noise(1 << bits, 3).tobytes()) if colour == 3 else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + palette
        + extra
        + _chunk(b"IDAT", zlib.compress(rows))
        + _chunk(b"IEND", b"")
    )


def transparency(content: bytes) -> bytes:
    """A tRNS chunk."""
    return _chunk(b"tRNS", content)


def _packed(line: Bytes, bits: int) -> bytes:
    """A row of samples, most significant bits first."""
    if bits >= 8:
        return line.tobytes()
    spread = np.unpackbits(line.reshape(-1, 1), axis=1)[:, 8 - bits :]
    return np.packbits(spread).tobytes()


def bmp(
    bits: int, compression: int, pixels: bytes, *, extra: bytes = b"", height: int = HEIGHT
) -> bytes:
    """A BMP with a header of 40 bytes, and ``extra``, masks or a palette, behind it."""
    at = 54 + len(extra)
    head = struct.pack(
        "<IiiHHIIiiII", 40, WIDTH, height, 1, bits, compression, len(pixels), 0, 0, 0, 0
    )
    return b"BM" + struct.pack("<IHHI", at + len(pixels), 0, 0, at) + head + extra + pixels


def bmp_of_os2() -> bytes:
    """A BMP with the header of OS/2, whose palette has three bytes an entry."""
    palette = noise(256, 3).tobytes()
    pixels = noise(HEIGHT, (WIDTH + 3) // 4 * 4).tobytes()
    at = 26 + len(palette)
    head = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, 8)
    return b"BM" + struct.pack("<IHHI", at + len(pixels), 0, 0, at) + head + palette + pixels


def bmp_in_runs(bits: int) -> bytes:
    """A BMP with run lengths: a row is a run, bytes as they are, and a run of its end."""
    rows = b""
    for row in range(HEIGHT):
        given = bytes([row, row + 1, row + 2, row + 3])
        literal = b"\0\x04" + (given if bits == 8 else given[:2])
        rows += bytes([10, row]) + literal + bytes([WIDTH - 14, 255 - row]) + b"\0\0"
    palette = noise(1 << bits, 4).tobytes()
    return bmp(bits, {8: 1, 4: 2}[bits], rows + b"\0\1", extra=palette)


def bmp_of_masks(*masks: int, bits: int) -> bytes:
    """A BMP whose samples lie where bit masks say."""
    row = (WIDTH * bits + 31) // 32 * 4
    return bmp(bits, 3, noise(HEIGHT, row).tobytes(), extra=struct.pack(f"<{len(masks)}I", *masks))


def tiff(
    bits: int,
    samples: int,
    colours: int,
    *,
    big_endian: bool = False,
    tile: int = 0,
    planes: int = 1,
    further: Sequence[tuple[int, list[int]]] = (),
) -> bytes:
    """A TIFF of noise without compression.

    Args:
        bits: Of a sample.
        samples: Of a pixel; a second or fourth is alpha, but where the colours are CMYK (5).
        colours: Its PhotometricInterpretation.
        big_endian: Its byte order.
        tile: Side of its tiles; 0 for one strip.
        planes: Its PlanarConfiguration.
        further: Other tags, whose values are beyond the end of the file.
    """
    order = ">" if big_endian else "<"
    width, height = (tile, tile) if tile else (WIDTH, HEIGHT)
    size = -(-width * bits * (samples if planes == 1 else 1) // 8) * height
    count = -(-WIDTH // width) * -(-HEIGHT // height) * (1 if planes == 1 else samples)
    pixels_at = 512
    offsets = [pixels_at + size * number for number in range(count)]
    if tile:
        places = [(322, [tile]), (323, [tile]), (324, offsets), (325, [size] * count)]
    else:
        places = [(273, offsets), (278, [HEIGHT]), (279, [size] * count)]
    alpha = [(338, [2])] if samples in (2, 4) and colours != 5 else []
    shape = [(256, [WIDTH]), (257, [HEIGHT]), (258, [bits] * samples), (277, [samples])]
    tags = sorted(
        [*shape, (259, [1]), (262, [colours]), (284, [planes]), *places, *alpha, *further]
    )
    entries, values_behind = b"", b""
    for tag, values in tags:
        short = tag not in (256, 257, 273, 278, 279, 305, 322, 323, 324, 325)
        packed = struct.pack(f"{order}{len(values)}{'H' if short else 'I'}", *values)
        if len(packed) > 4:
            at = 14 + 12 * len(tags) + len(values_behind)
            if (tag, values) in further:
                at = 10**9
            else:
                values_behind += packed
            packed = struct.pack(order + "I", at)
        entries += struct.pack(order + "HHI", tag, 3 if short else 4, len(values))
        entries += packed.ljust(4, b"\0")
    head = (b"MM\0*" if big_endian else b"II*\0") + struct.pack(order + "IH", 8, len(tags))
    directory = head + entries + bytes(4) + values_behind
    return directory.ljust(pixels_at, b"\0") + noise(count, size).tobytes()


def gif(
    *,
    transparent: int | None = None,
    background: int = 0,
    offset: bool = False,
    interlaced: bool = False,
) -> bytes:
    """A GIF whose first frame may be smaller than its screen."""
    image = Image.frombytes("P", (WIDTH, HEIGHT), noise(HEIGHT, WIDTH, below=16).tobytes())
    image.putpalette(noise(16, 3).tobytes())
    options = {} if transparent is None else {"transparency": transparent}
    data = bytearray(saved(image, "GIF", interlace=interlaced, **options))
    data[11] = background
    if offset:
        at = data.index(b",", 13 + (3 << (data[10] & 7) + 1))
        struct.pack_into("<HH", data, at + 1, 5, 3)
        struct.pack_into("<HH", data, 6, WIDTH + 9, HEIGHT + 7)
    return bytes(data)


def sun(pixels: Bytes) -> bytes:
    """A Sun raster of (H, W, 3) with an even width."""
    height, width, _ = pixels.shape
    head = struct.pack(">8I", 0x59A66A95, width, height, 24, pixels.size, 1, 0, 0)
    return head + pixels[:, :, ::-1].tobytes()
