"""Baseline JPEGs written block by block: any sampling factors, any restart interval.

Their coefficients are random, which decoders do not mind. No library at hand writes, say, a luma
plane that is narrower than chroma, or factors of three.
"""

import struct
from collections.abc import Sequence

import numpy as np

_DC_SIZES = range(7)  # of differences, which keep the samples within range most of the time
_AC_SYMBOLS = [0x00, 0xF0, *(run << 4 | size for run in (0, 1, 5, 15) for size in (1, 2, 4))]
_DC_BITS, _AC_BITS = 3, 4  # codes all of one length, none of which consists of ones alone


def coded(
    width: int, height: int, factors: Sequence[tuple[int, int]], interval: int = 0, seed: int = 0
) -> bytes:
    """An image of as many components as there are (across, down) factors."""
    rng = np.random.default_rng([seed, width, height, interval, *np.ravel(factors)])
    single = len(factors) == 1
    across = 8 * (1 if single else max(h for h, _ in factors))
    down = 8 * (1 if single else max(v for _, v in factors))
    mcus = -(-width // across) * -(-height // down)
    blocks = 1 if single else sum(h * v for h, v in factors)
    return b"".join(
        [
            b"\xff\xd8",
            _segment(0xDB, bytes([0, *rng.integers(1, 30, 64).tolist()])),
            _frame(width, height, factors),
            _segment(0xC4, b"\x00" + _table(_DC_BITS, _DC_SIZES)),
            _segment(0xC4, b"\x10" + _table(_AC_BITS, _AC_SYMBOLS)),
            _segment(0xDD, struct.pack(">H", interval)),
            _scan(len(factors)),
            _runs(rng, mcus, blocks, interval or mcus),
            b"\xff\xd9",
        ]
    )


def lossless(pixels: np.ndarray) -> bytes:
    """(height, width) of 8 bits as a lossless JPEG (SOF3), each pixel predicted by its left one."""
    height, width = pixels.shape
    before = np.empty((height, width), int)
    before[:, 1:] = pixels[:, :-1]
    before[1:, 0] = pixels[:-1, 0]
    before[0, 0] = 128
    bits = ""
    for difference in (pixels.astype(int) - before).ravel().tolist():
        size = abs(difference).bit_length()
        value = difference if difference > 0 else difference + (1 << size) - 1
        bits += _code(4, size) + (f"{value:0{size}b}" if size else "")
    bits += "1" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00"
    tables = _segment(0xC4, b"\x00" + _table(4, range(9)))
    scan = _segment(0xDA, b"\x01\x01\x00\x01\x00\x00")
    return b"\xff\xd8" + _segment(0xC3, frame) + tables + scan + data + b"\xff\xd9"


def _segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def _table(bits: int, symbols: Sequence[int]) -> bytes:
    assert len(symbols) < 2**bits
    return bytes(len(symbols) * (length == bits) for length in range(1, 17)) + bytes(symbols)


def _frame(width: int, height: int, factors: Sequence[tuple[int, int]]) -> bytes:
    head = struct.pack(">BHHB", 8, height, width, len(factors))
    components = (bytes([i + 1, h << 4 | v, 0]) for i, (h, v) in enumerate(factors))
    return _segment(0xC0, head + b"".join(components))


def _scan(components: int) -> bytes:
    names = b"".join(bytes([i + 1, 0]) for i in range(components))
    return _segment(0xDA, bytes([components]) + names + bytes([0, 63, 0]))


def _runs(rng: np.random.Generator, mcus: int, blocks: int, interval: int) -> bytes:
    runs = []
    for first in range(0, mcus, interval):
        count = min(interval, mcus - first) * blocks
        bits = "".join(_block(rng) for _ in range(count))
        bits += "1" * (-len(bits) % 8)
        data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")
        runs.append(data)
    marked = (data + bytes([0xFF, 0xD0 + i % 8]) for i, data in enumerate(runs[:-1]))
    return b"".join(marked) + runs[-1]


def _block(rng: np.random.Generator) -> str:
    """The bits of a block: a DC difference, some coefficients, and the end of the block."""
    size = int(rng.integers(len(_DC_SIZES)))
    bits = _code(_DC_BITS, size) + _value(rng, size)
    k = 1
    for _ in range(int(rng.choice([0, 0, 1, 3, 20, 64]))):
        index = int(rng.integers(1, len(_AC_SYMBOLS)))
        symbol = _AC_SYMBOLS[index]
        k += (symbol >> 4) + 1
        if k > 64:
            break
        bits += _code(_AC_BITS, index) + _value(rng, symbol & 15)
        if k == 64:
            return bits
    return bits + _code(_AC_BITS, 0)


def _code(bits: int, index: int) -> str:
    return f"{index:0{bits}b}"


def _value(rng: np.random.Generator, size: int) -> str:
    return f"{int(rng.integers(2**size)):0{size}b}" if size else ""
