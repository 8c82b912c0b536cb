"""Headers of PNG, WebP, BMP, GIF and TIFF against Pillow, and what damaged ones are told."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastdata.batch.decode import decode
from fastdata.errors import DecodeError
from fastdata.images.probe import probe

CASES: list[tuple[str, str, dict[str, Any], int]] = [
    ("png", "RGB", {}, 3),
    ("png", "L", {}, 1),
    ("png", "LA", {}, 2),
    ("png", "RGBA", {}, 4),
    ("png", "P", {}, 1),
    ("png", "I;16", {}, 1),
    ("webp", "RGB", {}, 3),
    ("webp", "RGBA", {}, 4),
    ("webp", "RGB", {"lossless": True}, 3),
    ("webp", "RGBA", {"lossless": True}, 4),
    ("webp", "RGB", {"exif": b"Exif\0\0" + bytes(40)}, 3),  # has a VP8X header
    ("bmp", "RGB", {}, 3),
    ("bmp", "RGBA", {}, 4),
    ("bmp", "L", {}, 1),
    ("bmp", "1", {}, 1),
    ("gif", "P", {}, 1),
    ("gif", "P", {"comment": b"x" * 600}, 1),
    ("tiff", "RGB", {}, 3),
    ("tiff", "L", {"compression": "tiff_lzw"}, 1),
    ("tiff", "RGB", {"compression": "jpeg"}, 3),
    ("tiff", "RGBA", {"tiffinfo": {278: 4}}, 4),  # several strips
    ("tiff", "I;16B", {}, 1),  # big-endian
]


def _encoded(kind: str, mode: str, options: dict[str, Any], size: tuple[int, int]) -> bytes:
    pixels = np.random.default_rng(3).integers(0, 256, (size[1], size[0], 4), np.uint8)
    image = Image.fromarray(pixels)
    if mode.startswith("I;16"):
        image = Image.frombytes(mode, size, pixels[..., :2].tobytes())
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("size", [(53, 37), (1, 1), (300, 2)])
def test_size_and_components_are_those_that_pillow_wrote(
    case: tuple[str, str, dict[str, Any], int], size: tuple[int, int]
) -> None:
    """A header gives the width, height and channels that the file was made with."""
    kind, mode, options, components = case

    assert probe(_encoded(kind, mode, options, size))[:4] == (kind, *size, components)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # of an offset that nothing needs
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_truncated_file_loses_nothing_that_a_decoder_needs(
    case: tuple[str, str, dict[str, Any], int],
) -> None:
    """A prefix that still passes for an image is one whose pixels Pillow still decodes alike."""
    kind, mode, options, _ = case
    data = _encoded(kind, mode, options, (19, 11))
    with Image.open(io.BytesIO(data)) as image:
        whole = np.asarray(image.convert("RGBA"))
    for size in range(len(data)):
        try:
            probe(data[:size])
        except DecodeError:
            continue
        with Image.open(io.BytesIO(data[:size])) as image:
            assert np.array_equal(np.asarray(image.convert("RGBA")), whole), size


def test_top_down_bmp_has_a_positive_height() -> None:
    """A BMP whose height is negative has its rows from top to bottom, and that many of them."""
    data = bytearray(_encoded("bmp", "RGB", {}, (6, 5)))
    struct.pack_into("<i", data, 22, -5)

    assert probe(bytes(data))[1:3] == (6, 5)


def test_os2_bmp_is_read() -> None:
    """The 12-byte header of OS/2 has sizes of 16 bits."""
    header = b"BM" + struct.pack("<IIIIHHHH", 26 + 60, 0, 26, 12, 4, 5, 1, 24)

    assert probe(header + bytes(60))[1:4] == (4, 5, 3)


def _png(width: int, height: int, colour: int = 2, crc: int | None = None) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    check = zlib.crc32(header) if crc is None else crc
    end = struct.pack(">I4sI", 0, b"IEND", zlib.crc32(b"IEND"))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", check) + end


def _webp(chunk: bytes, contents: bytes) -> bytes:
    body = b"WEBP" + chunk + struct.pack("<I", len(contents)) + contents
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_png(0, 5), "0x5 pixels holds nothing"),
        (_png(2**31, 2**31), "2147483648x2147483648 pixels, over the limit"),
        (_png(1, 1, crc=5), "IHDR does not match its CRC"),
        (_png(1, 1, colour=5), "colour type 5"),
        (_png(1, 1).replace(b"IHDR", b"IDAT"), "first chunk is not IHDR"),
        (b"GIF89a" + struct.pack("<HHBBB", 9, 9, 0, 0, 0) + b";", "holds no frame"),
        (_webp(b"VP8 ", bytes(10)), "does not start with a key frame"),
        (_webp(b"VP8L", bytes(5)), "lossless frame without its signature"),
        (_webp(b"VP8X", bytes(10)), "holds no whole frame"),
        (_webp(b"ICCP", bytes(10)), "first chunk is b'ICCP'"),
        (b"BM" + bytes(12) + struct.pack("<I", 16) + bytes(40), "a header of 16 bytes"),
        (b"BM" + bytes(12) + struct.pack("<IIIHH", 40, 1, 1, 1, 7) + bytes(40), "7 bits per pixel"),
        (b"MM\0+\0\10\0\0" + b"\xff" * 8, "truncated TIFF"),
        (b"II*\0" + struct.pack("<IHI", 8, 0, 0), "0x0 pixels holds nothing"),
        (b"MM\0+\0\10\0\0" + struct.pack(">QQQ", 16, 0, 0), "0x0 pixels holds nothing"),
    ],
)
def test_each_fault_has_its_sentence(data: bytes, message: str) -> None:
    """A damaged or oversized header is refused by the rule that it breaks."""
    with pytest.raises(DecodeError, match=message):
        probe(data)


def test_counts_in_a_tiff_are_checked_before_they_are_believed() -> None:
    """A tag that claims four billion values in a file of 30 bytes is a truncated header."""
    entry = struct.pack("<HHII", 273, 4, 2**32 - 1, 8)

    with pytest.raises(DecodeError, match="truncated TIFF"):
        probe(b"II*\0" + struct.pack("<IH", 8, 1) + entry)


def _tiff(*entries: tuple[int, int, int, int], values: bytes = b"") -> bytes:
    """Entries of tag, type, count, and value or offset into ``values``."""
    start = 8 + 2 + 12 * len(entries) + 4
    rows = (
        struct.pack("<HHII", tag, kind, count, value + (start if count > 4 else 0))
        for tag, kind, count, value in entries
    )
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    return head + b"".join(rows) + bytes(4) + values


def test_values_of_a_tiff_cannot_be_the_same_bytes_many_times() -> None:
    """Tags that share a long value, which would be read once for each, are refused."""
    data = _tiff(*[(320, 1, 100_000, 0)] * 50, values=bytes(100_000))

    with pytest.raises(DecodeError, match="bytes of values in as large a file"):
        probe(data)


def test_tiles_of_a_tiff_are_no_way_past_the_limits() -> None:
    """A small image of huge tiles, which a decoder would take memory for, is refused."""
    sizes = [(256, 3, 1, 100), (257, 3, 1, 100), (322, 4, 1, 46336), (323, 4, 1, 46336)]

    with pytest.raises(DecodeError, match="tiles of 2147024896 pixels"):
        probe(_tiff(*sizes))


def test_a_gif_is_as_large_as_its_frame() -> None:
    """A first frame that reaches beyond the screen makes the picture larger, as in Pillow."""
    encoded = io.BytesIO()
    Image.new("L", (30, 20), 200).save(encoded, "GIF")
    data = bytearray(encoded.getvalue())
    data[6:10] = struct.pack("<HH", 8, 9)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.array(image.convert("RGB"))

    info = probe(bytes(data))

    assert (info.width, info.height) == (30, 20) == expected.shape[1::-1]
    assert np.array_equal(decode(bytes(data)), expected)
