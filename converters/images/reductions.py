"""What is lost when an image file is decoded, found from its structure."""

import struct
from collections.abc import Iterator

FIRST_FRAME = "first of several frames"
LESS_DEPTH = "16 bits to 8"
NO_ALPHA = "alpha dropped"
STRETCHED = "least to greatest value stretched to 8 bits"

_TIFF_BITS, _TIFF_EXTRA_SAMPLES = 258, 338


def several_frames(data: bytes, kind: str) -> bool:
    """Whether it is an animation or a TIFF of several pages; decoders take the first picture.

    Args:
        data: A whole file that was probed.
        kind: Its format.
    """
    look = {"gif": _gif_frames, "png": _png_frames, "webp": _webp_frames, "tiff": _tiff_pages}
    if kind not in look:
        return False
    try:
        return look[kind](memoryview(data))
    except (struct.error, IndexError):  # cut off after the first frame, which is whole
        return False


def eight_bits(data: bytes, kind: str) -> tuple[str, ...]:
    """What is lost if an image becomes eight bits of red, green and blue."""
    look = {"png": _png_depth, "webp": _webp_alpha, "tiff": _tiff_depth}
    if kind not in look:
        return ()
    try:
        deep, alpha = look[kind](memoryview(data))
    except (struct.error, IndexError):  # its structure does not say
        return ()
    return ((LESS_DEPTH,) if deep else ()) + ((NO_ALPHA,) if alpha else ())


def _gif_frames(data: memoryview) -> bool:
    at = 13 + _gif_palette(data[10])
    frames = 0
    while data[at] != 0x3B:  # trailer
        if data[at] == 0x2C:
            frames += 1
            if frames == 2:
                return True
            at += 11 + _gif_palette(data[at + 9])  # past the descriptor and the code size
        else:  # extension
            at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    return False


def _gif_palette(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _png_chunks(data: memoryview) -> Iterator[tuple[bytes, int]]:
    """Name and offset of the chunks before the pixels."""
    at, name = 8, b""
    while name not in (b"IDAT", b"IEND"):
        length, name = struct.unpack_from(">I4s", data, at)
        yield name, at + 8
        at += 12 + length


def _png_frames(data: memoryview) -> bool:
    return any(
        name == b"acTL" and struct.unpack_from(">I", data, at)[0] > 1
        for name, at in _png_chunks(data)
    )


def _png_depth(data: memoryview) -> tuple[bool, bool]:
    alpha = data[25] in (4, 6) or any(name == b"tRNS" for name, _ in _png_chunks(data))
    return data[24] == 16, alpha


def _webp_chunks(data: memoryview) -> Iterator[tuple[bytes, int]]:
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        yield name, at + 8
        at += 8 + length + (length & 1)


def _webp_frames(data: memoryview) -> bool:
    return sum(name == b"ANMF" for name, _ in _webp_chunks(data)) > 1


def _webp_alpha(data: memoryview) -> tuple[bool, bool]:
    name, at = next(_webp_chunks(data))
    if name == b"VP8X":
        return False, bool(data[at] & 0x10)
    return False, name == b"VP8L" and bool(data[at + 4] & 0x10)


def _tiff_entries(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Tag, type, count and value offset of each entry; then tag 0 with the offset after them."""
    order = _tiff_order(data)
    (at,) = struct.unpack_from(order + "I", data, 4)
    (entries,) = struct.unpack_from(order + "H", data, at)
    for entry in range(at + 2, at + 2 + 12 * entries, 12):
        tag, kind, count = struct.unpack_from(order + "HHI", data, entry)
        yield tag, kind, count, entry + 8
    yield 0, 0, 0, at + 2 + 12 * entries


def _tiff_order(data: memoryview) -> str:
    return "<" if data[0] == 0x49 else ">"


def _tiff_pages(data: memoryview) -> bool:
    *_, (_, _, _, end) = _tiff_entries(data)
    return bool(struct.unpack_from(_tiff_order(data) + "I", data, end)[0])


def _tiff_depth(data: memoryview) -> tuple[bool, bool]:
    order = _tiff_order(data)
    deep = alpha = False
    for tag, kind, count, at in _tiff_entries(data):
        if tag == _TIFF_BITS and kind == 3:  # SHORT; more than two are stored elsewhere
            place = at if count <= 2 else struct.unpack_from(order + "I", data, at)[0]
            deep = struct.unpack_from(order + "H", data, place)[0] > 8
        alpha = alpha or tag == _TIFF_EXTRA_SAMPLES
    return deep, alpha
