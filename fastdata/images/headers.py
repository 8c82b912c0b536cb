"""Sizes from the headers of PNG, WebP, BMP, GIF, TIFF and NPY.

Each reader takes the whole file and returns (width, height, components). It checks that the file is
complete, as well as that can be told without decoding. Where the file ends within a header it may
raise ``struct.error`` or ``IndexError``, which ``fastdata.images.probe`` turns into a
``DecodeError``.
"""

import re
import struct
import zlib

from fastdata.errors import DecodeError

Size = tuple[int, int, int]
"""Width, height and components of an image."""

_PNG_COMPONENTS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type; 3 is an index into a palette


def _truncated(kind: str, size: int, needed: int) -> DecodeError:
    return DecodeError(f"truncated {kind}: {size} bytes of at least {needed}")


def read_png(data: memoryview) -> Size:
    """Read the size from IHDR, and follow the chunks to IEND."""
    length, name = struct.unpack_from(">I4s", data, 8)
    if (length, name) != (13, b"IHDR"):
        raise DecodeError("damaged PNG: its first chunk is not IHDR")
    width, height, _, colour_type = struct.unpack_from(">IIBB", data, 16)
    (crc,) = struct.unpack_from(">I", data, 29)
    if zlib.crc32(data[12:29]) != crc:
        raise DecodeError("damaged PNG: IHDR does not match its CRC")
    if colour_type not in _PNG_COMPONENTS:
        raise DecodeError(f"damaged PNG: there is no colour type {colour_type}")
    at = 33
    while name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, at)
        at += 12 + length
        if at > len(data):
            raise _truncated("PNG", len(data), at)
    return width, height, _PNG_COMPONENTS[colour_type]


def read_gif(data: memoryview) -> Size:
    """Read the size of the logical screen, and follow the blocks to the end of the first frame.

    A frame that reaches beyond the screen enlarges the picture, as in Pillow.
    """
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + _gif_palette(flags)
    while data[at] == 0x21:  # extensions
        at = _gif_blocks(data, at + 2)
    if data[at] != 0x2C:
        raise DecodeError("damaged GIF: it holds no frame")
    left, top, across, down, flags = struct.unpack_from("<HHHHB", data, at + 1)
    _gif_blocks(data, at + 11 + _gif_palette(flags))  # past the descriptor and the code size
    return max(width, left + across), max(height, top + down), 1


def _gif_palette(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _gif_blocks(data: memoryview, at: int) -> int:
    """Return where the sub-blocks end that start at ``at``."""
    while data[at]:
        at += 1 + data[at]
    return at + 1


def read_bmp(data: memoryview) -> Size:
    """Read the size from the DIB header; if pixels are uncompressed, all of them must be there."""
    pixels_at, header_size = struct.unpack_from("<II", data, 10)
    if header_size == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        compression = 0
    elif header_size >= 40:
        width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
        height = abs(height)  # negative where the top row comes first
    else:
        raise DecodeError(f"damaged BMP: a header of {header_size} bytes")
    if bits not in (1, 4, 8, 16, 24, 32):
        raise DecodeError(f"damaged BMP: {bits} bits per pixel")
    packed = compression not in (0, 3, 6)  # neither plain nor plain with bit masks
    row = (width * bits + 31) // 32 * 4
    needed = pixels_at + (1 if packed else row * height)
    if needed > len(data):
        raise _truncated("BMP", len(data), needed)
    return width, height, {24: 3, 32: 4}.get(bits, 3 if bits == 16 else 1)


def is_plain_bmp(data: memoryview) -> bool:
    """Whether all readers agree on the pixels of a BMP that was probed.

    They do for a palette, 24 or 32 bits, without compression, bit masks or overlapping parts.
    """
    pixels_at, header_size = struct.unpack_from("<II", data, 10)
    if header_size not in _BMP_HEADERS:
        return False
    bits, compression, used = struct.unpack_from("<HI12xI", data, 28)
    palette = 4 * (used or 1 << bits) if bits <= 8 else 0
    return (
        bits in (1, 4, 8, 24, 32)
        and compression == 0
        and used <= 256
        and pixels_at >= 14 + header_size + palette
    )


_BMP_HEADERS = (40, 108, 124)  # BITMAPINFOHEADER, BITMAPV4HEADER, BITMAPV5HEADER


def read_webp(data: memoryview) -> Size:
    """Read the size from the first chunk; if that is VP8X, a frame must follow."""
    riff_size, name = struct.unpack_from("<I4x4s", data, 4)
    if riff_size + 8 > len(data):
        raise _truncated("WebP", len(data), riff_size + 8)
    if name == b"VP8 ":
        tag, start_code, width, height = struct.unpack_from("<B2x3sHH", data, 20)
        if tag & 1 or start_code != b"\x9d\x01\x2a":
            raise DecodeError("damaged WebP: it does not start with a key frame")
        return width & 0x3FFF, height & 0x3FFF, 3  # the upper two bits hint at scaling
    if name == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F or bits >> 29:
            raise DecodeError("damaged WebP: a lossless frame without its signature")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF), 3 + (bits >> 28 & 1)
    if name == b"VP8X":
        flags, width, height = struct.unpack_from("<B3x3s3s", data, 20)
        _find_webp_frame(data, riff_size + 8)
        sides = (1 + int.from_bytes(side, "little") for side in (width, height))
        return *sides, 3 + (flags >> 4 & 1)
    raise DecodeError(f"damaged WebP: its first chunk is {name!r}")


def _find_webp_frame(data: memoryview, end: int) -> None:
    at = 12
    while at + 8 <= end:
        name, length = struct.unpack_from("<4sI", data, at)
        at += 8 + length + (length & 1)
        if name in (b"VP8 ", b"VP8L", b"ANMF") and at <= end:
            return
    raise DecodeError("damaged WebP: it holds no whole frame")


# BYTE, SHORT, LONG, UNDEFINED, and BigTIFF's LONG8: the types of all tags that matter here
_TIFF_TYPES = {1: "B", 3: "H", 4: "I", 7: "B", 16: "Q"}
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_BITS, _TIFF_COMPRESSION, _TIFF_COLOURS = 256, 257, 258, 259, 262
_TIFF_FILL_ORDER, _TIFF_ORIENTATION, _TIFF_SAMPLES, _TIFF_PLANES = 266, 274, 277, 284
_TIFF_STRIPS, _TIFF_STRIP_BYTES, _TIFF_TILES, _TIFF_TILE_BYTES = 273, 279, 324, 325
_TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT, _TIFF_EXTRA_SAMPLES, _TIFF_SAMPLE_FORMAT = 322, 323, 338, 339
_TIFF_PALETTE, _TIFF_JPEG_TABLES = 320, 347  # after the pixels in many files
_TIFF_WANTED = frozenset(
    {_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_BITS, _TIFF_COMPRESSION, _TIFF_COLOURS}
    | {_TIFF_FILL_ORDER, _TIFF_ORIENTATION, _TIFF_SAMPLES, _TIFF_PLANES}
    | {_TIFF_STRIPS, _TIFF_STRIP_BYTES, _TIFF_TILES, _TIFF_TILE_BYTES}
    | {_TIFF_PALETTE, _TIFF_JPEG_TABLES, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT}
    | {_TIFF_EXTRA_SAMPLES, _TIFF_SAMPLE_FORMAT}
)
# Of one tile that is larger than its image: decoders allocate whole tiles.
_TIFF_MOST_TILE_PIXELS = 2**22
TiffTags = dict[int, tuple[int, ...]]


def read_tiff(data: memoryview) -> Size:
    """Read the size from the first directory, and check that its strips or tiles are there.

    Those without a stated length are left to the decoder.
    """
    tags = _tiff_directory(data)
    offsets = tags.get(_TIFF_STRIPS) or tags.get(_TIFF_TILES, ())
    lengths = tags.get(_TIFF_STRIP_BYTES) or tags.get(_TIFF_TILE_BYTES, ())
    width, height = (tags.get(tag, (0,))[0] for tag in (_TIFF_WIDTH, _TIFF_HEIGHT))
    samples = tags.get(_TIFF_SAMPLES, (1,))[0]
    if tags.get(_TIFF_COMPRESSION, (1,))[0] == 1 and _TIFF_STRIPS in tags:
        # Some writers state more bytes for a strip than the image needs.
        whole = (width * samples * max(tags.get(_TIFF_BITS, (1,))) + 7) // 8 * height
        lengths = tuple(min(length, whole) for length in lengths)
    needed = max(map(sum, zip(offsets, lengths, strict=False)), default=0)
    if needed > len(data):
        raise _truncated("TIFF", len(data), needed)
    tile = tags.get(_TIFF_TILE_WIDTH, (0,))[0] * tags.get(_TIFF_TILE_HEIGHT, (0,))[0]
    if tile > max(width * height, _TIFF_MOST_TILE_PIXELS):
        raise DecodeError(f"damaged TIFF: tiles of {tile} pixels, and {width}x{height} in all")
    if tags.get(_TIFF_ORIENTATION, (1,))[0] in (5, 6, 7, 8):  # decoders turn it upright
        width, height = height, width
    return width, height, samples


def _tiff_directory(data: memoryview) -> TiffTags:
    """Read the values of the tags that matter, and check that they lie within the file."""
    order = "<" if data[0] == 0x49 else ">"
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    word, entry_format, inline = ("Q", "HHQ", 8) if big else ("I", "HHI", 4)
    (at,) = struct.unpack_from(order + word, data, 8 if big else 4)
    if at > len(data):  # struct refuses offsets of 64 bits in its own way
        raise _truncated("TIFF", len(data), at)
    (entries,) = struct.unpack_from(order + ("Q" if big else "H"), data, at)
    start, entry_size = (at + 8, 20) if big else (at + 2, 12)
    end = start + entry_size * entries
    if end > len(data):
        raise _truncated("TIFF", len(data), end)
    tags: TiffTags = {}
    total = 0
    for entry in range(start, end, entry_size):
        tag, kind, count = struct.unpack_from(order + entry_format, data, entry)
        if tag not in _TIFF_WANTED or kind not in _TIFF_TYPES or not count:
            continue
        values = f"{order}{min(count, len(data) + 1)}{_TIFF_TYPES[kind]}"
        value_at = entry + entry_size - inline
        if struct.calcsize(values) > inline:  # the entry then holds an offset
            (value_at,) = struct.unpack_from(order + word, data, value_at)
        end = value_at + struct.calcsize(values)
        if end > len(data):
            raise _truncated("TIFF", len(data), end)
        total += struct.calcsize(values)
        if total > len(data):  # many tags that point to the same bytes would take hours
            raise DecodeError(f"damaged TIFF: over {len(data)} bytes of values in as large a file")
        tags[tag] = struct.unpack_from(values, data, value_at)
    return tags


def is_plain_tiff(data: memoryview) -> bool:
    """Whether all readers agree on the pixels of a TIFF that was probed.

    They do for gray or RGB of 8 bits without alpha, in strips of interleaved samples, with the
    common lossless compressions. On the rest of TIFF each library has its own view.
    """
    tags = _tiff_directory(data)
    samples, colours = (tags.get(tag, (1,))[0] for tag in (_TIFF_SAMPLES, _TIFF_COLOURS))
    return (
        (samples, colours) in ((1, 1), (3, 2))
        and tags.get(_TIFF_BITS) == (8,) * samples
        and tags.get(_TIFF_COMPRESSION, (1,))[0] in _TIFF_COMMON_COMPRESSIONS
        and all(
            set(tags.get(tag, (1,))) == {1}
            for tag in (_TIFF_FILL_ORDER, _TIFF_ORIENTATION, _TIFF_PLANES, _TIFF_SAMPLE_FORMAT)
        )
        and len(tags.get(_TIFF_STRIPS, ())) == len(tags.get(_TIFF_STRIP_BYTES, ())) > 0
        and not {_TIFF_TILE_WIDTH, _TIFF_TILES, _TIFF_EXTRA_SAMPLES} & tags.keys()
    )


_TIFF_COMMON_COMPRESSIONS = (1, 5, 8, 32773, 32946)  # none, LZW, Deflate, PackBits, old Deflate


NPY_MAGIC = b"\x93NUMPY"

# NPY 1.0 starts with the text of a Python dictionary, which numpy always spells in the same way.
# A pattern reads only that spelling: nothing is evaluated.
_NPY_HEAD = 10  # magic, version, length of the text
_NPY_TEXT = re.compile(
    rb"\{'descr': '\|u1', 'fortran_order': False, 'shape': \((\d{1,9}), (\d{1,9}), 3\), \} *\n"
)


def read_npy(data: memoryview) -> Size:
    """Read the shape of pixels that numpy saved; they must fill the rest of the file."""
    if len(data) < _NPY_HEAD:  # decode() asks without a probe
        raise _truncated("NPY", len(data), _NPY_HEAD)
    major, minor, length = struct.unpack_from("<BBH", data, 6)
    if (major, minor) != (1, 0):
        raise DecodeError(f"NPY of version {major}.{minor}, which is not supported")
    text = bytes(data[10 : 10 + length])
    if len(text) != length:
        raise _truncated("NPY", len(data), 10 + length)
    match = _NPY_TEXT.fullmatch(text)
    if match is None:
        raise DecodeError(f"NPY that is not (H, W, 3) uint8 in C order: {text[:80]!r}")
    height, width = int(match[1]), int(match[2])
    needed = 10 + length + height * width * 3
    if len(data) != needed:
        raise DecodeError(f"damaged NPY: {len(data)} bytes instead of {needed}")
    return width, height, 3
