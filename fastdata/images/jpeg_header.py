"""Reads a JPEG's header in Python, only where the native core is missing.

csrc/jpeg/segments.cpp and csrc/jpeg/header.cpp give the same results and refusals; tests compare
them. Only two things here have other uses: the type ``JpegHeader``, and :func:`is_lossless`, which
is asked about files that either reader refused.
"""

import re
from typing import NamedTuple

from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS, MAX_SCANS, MAX_SEGMENTS, check_pixels

_TEM, _RST0, _RST7, _SOI, _EOI, _SOS, _DRI = 0x01, 0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xDD
_DHT, _DAC, _DQT, _DNL, _APP0, _APP15, _COM = 0xC4, 0xCC, 0xDB, 0xDC, 0xE0, 0xEF, 0xFE
_BARE = frozenset({_TEM, *range(_RST0, _RST7 + 1)})  # markers without a length
# libjpeg needs nothing in these to find pixels, and accepts any length.
_IGNORED = frozenset({_DNL, _COM, *range(_APP0, _APP15 + 1)})

# Frame headers, by the kind of JPEG they announce.
_PROGRESSIVE, _ARITHMETIC, _ARITHMETIC_PROGRESSIVE = 0xC2, 0xC9, 0xCA
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_LOSSLESS_HUFFMAN = 0xC3
_LOSSLESS = frozenset({_LOSSLESS_HUFFMAN, 0xCB})
_HIERARCHICAL = frozenset({0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF})
_FRAMES = (
    {_PROGRESSIVE, _ARITHMETIC, _ARITHMETIC_PROGRESSIVE} | _SEQUENTIAL | _LOSSLESS | _HIERARCHICAL
)

_KNOWN = frozenset({_SOS, _DRI, _DHT, _DAC, _DQT}) | _IGNORED | _FRAMES

# Within entropy-coded data 0xff00 is a data byte, 0xffd0 to 0xffd7 are restart markers, and a run
# of 0xff is padding. Elsewhere whatever is neither a marker nor its padding is stray, and skipped.
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_MARKER = re.compile(rb"\xff[^\x00\xff]")

_NAMED_SAMPLING = {
    (1, 1): "4:4:4",
    (2, 1): "4:2:2",
    (2, 2): "4:2:0",
    (1, 2): "4:4:0",
    (4, 1): "4:1:1",
    (4, 2): "4:1:0",
    (1, 4): "4:4:1",
}


class JpegHeader(NamedTuple):
    """What a JPEG says of itself before any pixel is decoded.

    Attributes:
        width: In pixels, at least 1.
        height: In pixels, at least 1.
        components: 1 (gray), 3 (YCbCr or RGB) or 4 (CMYK or YCCK).
        sampling: Chroma sampling such as ``"4:2:0"``; ``"4:0:0"`` for gray; for rare kinds the
            factors of every component, as in ``"2x2,1x2,1x1"``.
        progressive: Whether coefficients arrive over several scans.
        arithmetic: Whether entropy coding is arithmetic; Huffman otherwise.
        restart_interval: MCUs between restart markers in the first scan; 0 means none.
        scans: How many scans there are.
    """

    width: int
    height: int
    components: int
    sampling: str
    progressive: bool
    arithmetic: bool
    restart_interval: int
    scans: int


class _Frame(NamedTuple):
    kind: int
    width: int
    height: int
    components: int
    sampling: str


def read_jpeg_header(
    data: bytes | memoryview,
    max_pixels: int = MAX_PIXELS,
    max_scans: int = MAX_SCANS,
    max_segments: int = MAX_SEGMENTS,
) -> JpegHeader:
    """Walk the markers of a JPEG from its first byte to its end-of-image marker.

    What libjpeg skips without an error is no error here: bytes between segments, and a missing
    end-of-image marker after the only scan of a Huffman-coded image, since decoding tells whether
    such a scan is complete.

    Args:
        data: The whole file; bytes after the end-of-image marker are ignored.
        max_pixels: Refuse a larger image.
        max_scans: Refuse an image with more scans.
        max_segments: Refuse a file with more marker segments.

    Raises:
        DecodeError: The file is truncated, damaged, over a limit, or of a kind that cannot be
            decoded (12-bit, lossless, hierarchical).
    """
    return _Walk(data, max_pixels, max_scans).run(max_segments)


def is_lossless(data: bytes | memoryview) -> bool:
    """Whether a JPEG is lossless with 8 bits, which Pillow reads by libjpeg-turbo 3."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        found = _MARKER.search(data, at)
        if found is None:
            return False
        at = found.end()
        marker = data[at - 1]
        if marker in _FRAMES:
            return marker == _LOSSLESS_HUFFMAN and bytes(data[at + 2 : at + 3]) == b"\x08"
        if marker in (_SOS, _EOI):
            return False
        if marker not in _BARE:
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return False


class _Walk:
    """One pass over the bytes; every read is checked against the end first."""

    def __init__(self, data: bytes | memoryview, max_pixels: int, max_scans: int) -> None:
        self._data = data
        self._max_pixels = max_pixels
        self._max_scans = max_scans
        self._at = 2
        self._frame: _Frame | None = None
        self._restart_interval = 0
        self._first_restart_interval = 0
        self._scans = 0
        self._one_scan = False  # sequential Huffman: decoding tells whether it is complete

    def run(self, max_segments: int) -> JpegHeader:
        if bytes(self._data[:2]) != b"\xff\xd8":
            raise DecodeError("not a JPEG: it does not start with 0xffd8")
        for _ in range(max_segments):  # a file of markers alone must not take minutes
            marker = self._next_marker()
            if marker == _EOI:
                return self._header()
            if marker in _BARE:
                continue
            start = None if marker is None else self._pass_segment(marker)
            if marker is not None and start is not None:
                self._read_segment(marker, start)
            elif self._one_scan:
                return self._header()
            else:
                raise DecodeError(
                    f"truncated JPEG: no end-of-image marker in its {len(self._data)} bytes"
                )
        raise DecodeError(f"JPEG with more than {max_segments} marker segments, over the limit")

    def _header(self) -> JpegHeader:
        if self._frame is None or not self._scans:
            raise DecodeError("damaged JPEG: it ends before its first scan")
        kind, width, height, components, sampling = self._frame
        return JpegHeader(
            width,
            height,
            components,
            sampling,
            progressive=kind in (_PROGRESSIVE, _ARITHMETIC_PROGRESSIVE),
            arithmetic=kind in (_ARITHMETIC, _ARITHMETIC_PROGRESSIVE),
            restart_interval=self._first_restart_interval,
            scans=self._scans,
        )

    def _u16(self, at: int) -> int:
        return self._data[at] << 8 | self._data[at + 1]

    def _next_marker(self) -> int | None:
        """Move past the next marker, and return it; None if there is none."""
        found = _MARKER.search(self._data, self._at)
        if found is None:
            return None
        self._at = found.end()
        return self._data[self._at - 1]

    def _pass_segment(self, marker: int) -> int | None:
        """Move past a segment; return where its content begins, or None if it is cut off."""
        if marker == _SOI:
            raise DecodeError("damaged JPEG: it has two start-of-image markers")
        if marker not in _KNOWN:
            raise DecodeError(f"JPEG with marker 0xff{marker:02x}, which is not supported")
        start = self._at + 2
        if start > len(self._data):
            return None
        length = self._u16(self._at)
        if length < 2 and marker not in _IGNORED:
            raise DecodeError(
                f"damaged JPEG: segment 0xff{marker:02x} has length {length}, under 2"
            )
        self._at = max(start, self._at + length)
        return start if self._at <= len(self._data) else None

    def _read_segment(self, marker: int, start: int) -> None:
        if marker == _SOS:
            self._read_scan(start)
        elif marker == _DRI:
            self._read_restart_interval(start)
        elif marker in _FRAMES:
            self._read_frame(start, marker)

    def _read_restart_interval(self, start: int) -> None:
        if self._at - start != 2:
            raise DecodeError(f"damaged JPEG: a restart interval of {self._at - start} bytes")
        self._restart_interval = self._u16(start)

    def _read_scan(self, start: int) -> None:
        """Check a scan's header, and move past its entropy-coded data."""
        if self._frame is None:
            raise DecodeError("damaged JPEG: a scan comes before the frame header")
        size = self._at - start
        components = self._data[start] if size else 0
        if not 1 <= components <= 4 or size != 4 + 2 * components:
            raise DecodeError(f"damaged JPEG: a scan header of {size} bytes")
        if not self._scans:
            # Only the first scan's interval is reported: with one scan it holds for the image.
            self._first_restart_interval = self._restart_interval
            self._one_scan = (
                self._frame.kind in _SEQUENTIAL and components == self._frame.components
            )
        self._scans += 1
        if self._scans > self._max_scans:
            raise DecodeError(f"JPEG with more than {self._max_scans} scans, over the limit")
        # A scan has no length: its data end with the next marker that is not a restart.
        found = _AFTER_SCAN.search(self._data, self._at)
        self._at = len(self._data) if found is None else found.start()

    def _read_frame(self, start: int, kind: int) -> None:
        if self._frame is not None:
            raise DecodeError("damaged JPEG: it has two frame headers")
        if kind in _LOSSLESS:
            raise DecodeError("lossless JPEG, which is not supported")
        if kind in _HIERARCHICAL:
            raise DecodeError("hierarchical JPEG, which is not supported")
        size = self._at - start
        if size < 6 or size != 6 + 3 * self._data[start + 5]:
            raise DecodeError(f"damaged JPEG: a frame header of {size} bytes")
        precision, components = self._data[start], self._data[start + 5]
        height, width = self._u16(start + 1), self._u16(start + 3)
        if precision != 8:
            raise DecodeError(f"JPEG with {precision}-bit samples; only 8-bit ones are supported")
        if components not in (1, 3, 4):
            raise DecodeError(f"JPEG with {components} components; 1, 3 and 4 are supported")
        if height == 0:  # it follows in a DNL marker; libjpeg refuses that, too
            raise DecodeError("JPEG with its height after its pixels (DNL), which is not supported")
        check_pixels(width, height, self._max_pixels)
        factors = [divmod(self._data[start + 7 + 3 * i], 16) for i in range(components)]
        self._frame = _Frame(kind, width, height, components, _sampling(factors))


def _sampling(factors: list[tuple[int, int]]) -> str:
    """Name the chroma sampling from each component's (horizontal, vertical) factors."""
    for h, v in factors:
        if not (1 <= h <= 4 and 1 <= v <= 4):
            raise DecodeError(f"damaged JPEG: sampling factors {h}x{v}, which must be 1 to 4")
    max_h, max_v = (max(column) for column in zip(*factors, strict=True))
    for h, v in factors:
        if max_h % h or max_v % v:  # libjpeg-turbo cannot decode these
            raise DecodeError(
                f"JPEG with sampling factors {h}x{v}, which do not divide the {max_h}x{max_v} of "
                "others"
            )
    if len(factors) == 1:
        return "4:0:0"
    (luma_h, luma_v), chroma, *_ = factors
    plain = factors[2] == chroma and luma_h % chroma[0] == 0 and luma_v % chroma[1] == 0
    black_as_luma = len(factors) == 3 or factors[3] == factors[0]
    if plain and black_as_luma:
        name = _NAMED_SAMPLING.get((luma_h // chroma[0], luma_v // chroma[1]))
        if name is not None:
            return name
    return ",".join(f"{h}x{v}" for h, v in factors)
