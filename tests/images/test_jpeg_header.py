"""The walk over a JPEG's markers, in Python and in the native core."""

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jpegs import ARITHMETIC, MAKERS, odd
from PIL import Image

from fastdata.errors import DecodeError
from fastdata.images.jpeg_header import JpegHeader, read_jpeg_header
from fastdata.images.limits import MAX_PIXELS, MAX_SCANS, MAX_SEGMENTS, JpegLimits

Reader = Callable[[bytes], JpegHeader]


def _picture(mode: str = "RGB") -> Image.Image:
    channels = {"L": (), "RGB": (3,), "CMYK": (4,)}[mode]
    pixels = np.random.default_rng(7).integers(0, 256, (37, 53, *channels), np.uint8)
    return Image.frombytes(mode, (53, 37), pixels.tobytes())


def _jpeg(mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    _picture(mode).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def _segment(marker: int, contents: bytes = b"") -> bytes:
    return bytes([0xFF, marker]) + (len(contents) + 2).to_bytes(2, "big") + contents


def _frame(
    width: int = 8, height: int = 8, *, marker: int = 0xC0, precision: int = 8, n: int = 1
) -> bytes:
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    components = b"".join(bytes([i, 0x11, 0]) for i in range(n))
    return _segment(marker, bytes([precision]) + size + bytes([n]) + components)


SOI, EOI = b"\xff\xd8", b"\xff\xd9"
SCAN = _segment(0xDA, bytes([1, 0, 0, 0, 63, 0])) + b"\x12\xff\x00\xff\xd3\x34"


@pytest.fixture(params=["python", "native"])
def read(request: pytest.FixtureRequest) -> Reader:
    """Both walks, one after the other."""
    if request.param == "python":
        return read_jpeg_header
    core: ModuleType = request.getfixturevalue("native_core")

    def native(data: bytes) -> JpegHeader:
        return JpegHeader(*core.probe_jpeg(data, JpegLimits()))

    return native


@pytest.mark.parametrize(
    ("mode", "options", "components", "sampling", "progressive"),
    [
        ("RGB", {"subsampling": "4:4:4"}, 3, "4:4:4", False),
        ("RGB", {"subsampling": "4:2:2"}, 3, "4:2:2", False),
        ("RGB", {"subsampling": "4:2:0"}, 3, "4:2:0", False),
        ("RGB", {"progressive": True}, 3, "4:2:0", True),
        ("L", {}, 1, "4:0:0", False),
        ("CMYK", {}, 4, "4:4:4", False),
    ],
)
def test_says_what_pillow_wrote(
    read: Reader,
    mode: str,
    options: dict[str, Any],
    components: int,
    sampling: str,
    progressive: bool,
) -> None:
    """Size, components, sampling and mode are those that the file was encoded with."""
    header = read(_jpeg(mode, **options))

    assert header[:6] == (53, 37, components, sampling, progressive, False)
    assert (header.scans > 1) == progressive


@pytest.mark.parametrize(
    ("factor", "name"),
    [(0x111111, "4:4:4"), (0x121111, "4:4:0"), (0x211111, "4:2:2"), (0x411111, "4:1:1")],
)
def test_names_the_sampling_that_opencv_wrote(read: Reader, factor: int, name: str) -> None:
    """Each sampling that OpenCV can write gets its usual name."""
    options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
    _, data = cv2.imencode(".jpg", np.asarray(_picture()), options)

    assert read(data.tobytes()).sampling == name


def test_rare_sampling_is_spelt_out(read: Reader) -> None:
    """Sampling without a usual name lists the factors of every component."""
    frame = bytearray(_frame(n=3))
    frame[-8], frame[-5], frame[-2] = 0x22, 0x12, 0x11

    assert read(SOI + bytes(frame) + SCAN + EOI).sampling == "2x2,1x2,1x1"


def test_restart_interval_is_in_mcus(read: Reader) -> None:
    """The restart interval is the one that the encoder was told, and 0 without one."""
    options = [cv2.IMWRITE_JPEG_RST_INTERVAL, 3]
    _, data = cv2.imencode(".jpg", np.asarray(_picture()), options)

    assert read(data.tobytes()).restart_interval == 3
    assert read(_jpeg()).restart_interval == 0


def test_arithmetic_coding_is_accepted_because_opencv_decodes_it(read: Reader) -> None:
    """An arithmetic-coded JPEG is told apart, and OpenCV and Pillow agree on its pixels."""
    assert read(ARITHMETIC) == (24, 16, 3, "4:2:0", False, True, 0, 1)

    decoded = cv2.imdecode(np.frombuffer(ARITHMETIC, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert decoded is not None
    with Image.open(io.BytesIO(ARITHMETIC)) as image:
        assert np.array_equal(decoded, np.asarray(image))


@pytest.mark.parametrize("data", [_jpeg(), _jpeg(progressive=True), ARITHMETIC])
def test_truncations_are_refused(read: Reader, data: bytes) -> None:
    """No prefix passes for a whole file; a single Huffman-coded scan shows it when decoded."""
    one_scan = b"\xff\xc0" in data
    for size in range(data.index(b"\xff\xda") + 14 if one_scan else len(data)):
        with pytest.raises(DecodeError, match=r"truncated JPEG|not a JPEG"):
            read(data[:size])
    if one_scan:
        assert read(data[:-2]) == read(data)


@pytest.mark.parametrize("kind", ["4:2:0 restart 5", "4:2:0 progressive", "gray"])
def test_odd_files_are_read_as_the_good_one(read: Reader, kind: str) -> None:
    """What libjpeg reads past without an error changes nothing of what is said."""
    data = MAKERS[kind](52, 37)

    for oddity, other in odd(data):
        assert read(other) == read(data), oddity


def test_what_may_stand_between_segments_is_passed(read: Reader) -> None:
    """Padding before markers, markers without length, and bytes after the end change nothing."""
    padding, bare = b"\xff\xff\xff", b"\xff\x01\xff\xd2"
    data = SOI + padding + _segment(0xE1, b"\xff\xd9") + bare + _frame() + SCAN + padding + EOI

    assert read(data + b"more") == (8, 8, 1, "4:0:0", False, False, 0, 1)


LARGE = {"width": 65500, "height": 65500}
THIRDS = _frame(n=3)[:-9] + b"\0\x21\0\1\x11\0\2\x31\0"
SCAN_OF_9 = _segment(0xDA, bytes([9]) + bytes(21))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a JPEG"),
        (SOI + b"\x00", "truncated JPEG"),
        (SOI + b"\xff\x00", "truncated JPEG"),
        (SOI + SOI, "two start-of-image markers"),
        (SOI + b"\xff\xdb\x00\x01", "segment 0xffdb has length 1, under 2"),
        (SOI + b"\xff\xe0\x10\x00ab", "truncated JPEG"),
        (SOI + EOI, "ends before its first scan"),
        (SOI + _frame() + EOI, "ends before its first scan"),
        (SOI + SCAN + EOI, "a scan comes before the frame header"),
        (SOI + _frame() + _frame(), "two frame headers"),
        (SOI + _segment(0xC0, bytes(5)), "a frame header of 5 bytes"),
        (SOI + _frame() + SCAN_OF_9, "a scan header of 22 bytes"),
        (SOI + _segment(0xDD, b"\0"), "a restart interval of 1 bytes"),
        (SOI + _frame(width=0), "0x8 pixels holds nothing"),
        (SOI + _frame(height=0), "height after its pixels"),
        (SOI + _frame(**LARGE), f"65500x65500 pixels, over the limit of {MAX_PIXELS}"),
        (SOI + _frame(precision=12), "12-bit samples"),
        (SOI + _frame(n=2), "2 components"),
        (SOI + _frame().replace(b"\x11", b"\x50"), "sampling factors 5x0"),
        (SOI + THIRDS, "factors 2x1, which do not divide the 3x1 of others"),
        (SOI + _frame(marker=0xC3), "lossless"),
        (SOI + _frame(marker=0xC5), "hierarchical"),
        (SOI + _segment(0xF7, bytes(9)), "0xfff7, which is not supported"),
        (SOI + _frame() + SCAN * (MAX_SCANS + 1), f"more than {MAX_SCANS} scans"),
        (SOI + _segment(0xFE) * (MAX_SEGMENTS + 1), f"more than {MAX_SEGMENTS} marker segments"),
    ],
)
def test_each_fault_has_its_sentence(read: Reader, data: bytes, message: str) -> None:
    """A damaged, oversized or unsupported JPEG is refused by the rule that it breaks."""
    with pytest.raises(DecodeError, match=message):
        read(data)


@pytest.mark.parametrize("scans", [1, MAX_SCANS])
def test_scans_up_to_the_limit_pass(read: Reader, scans: int) -> None:
    """The limit on scans is the last number that is accepted."""
    assert read(SOI + _frame() + SCAN * scans + EOI).scans == scans


def _outcome(walk: Callable[[bytes], object], data: bytes) -> object:
    try:
        return walk(data)
    except DecodeError as error:
        return str(error)


def _assert_twins(core: ModuleType, data: bytes) -> None:
    native = _outcome(lambda d: core.probe_jpeg(d, JpegLimits()), data)

    assert native == _outcome(read_jpeg_header, data)


@pytest.mark.parametrize("seed", range(8))
def test_walks_agree_on_damaged_files(native_core: ModuleType, seed: int) -> None:
    """Native and Python walk give one result, or one sentence, on thousands of mutated files."""
    rng = np.random.default_rng(seed)
    source = [_jpeg("L"), _jpeg(), _jpeg(progressive=True), ARITHMETIC][seed % 4]
    for _ in range(500):
        data = bytearray(source)
        for _ in range(rng.integers(1, 5)):
            at = int(rng.integers(2, min(len(data), 700)))
            data[at] = int(rng.choice([int(rng.integers(256)), 0xFF, 0xD9, 0xDA, 0xC0, 0]))
        if rng.integers(4) == 0:
            del data[int(rng.integers(2, len(data))) :]
        _assert_twins(native_core, bytes(data))


_PIECES = st.one_of(
    st.builds(_segment, st.integers(0, 255), st.binary(max_size=20)),
    st.builds(_frame, st.integers(0, 65535), st.integers(0, 65535), n=st.integers(0, 5)),
    st.sampled_from([SCAN, EOI, SOI, b"\xff", b"\xff\x01", _segment(0xDD, b"\0\5")]),
    st.binary(max_size=9),
)


@settings(max_examples=1000, deadline=None)
@given(st.lists(_PIECES, max_size=8))
def test_walks_agree_on_any_sequence_of_segments(
    native_core: ModuleType, pieces: list[bytes]
) -> None:
    """Native and Python walk agree on well and badly formed sequences of segments."""
    _assert_twins(native_core, SOI + b"".join(pieces))


def test_core_reads_any_buffer_of_bytes(native_core: ModuleType) -> None:
    """Bytes, a slice of a memoryview and a numpy array are all read where they are."""
    data = _jpeg()
    limits = JpegLimits()
    expected = native_core.probe_jpeg(data, limits)

    assert native_core.probe_jpeg(memoryview(b"??" + data)[2:], limits) == expected
    assert native_core.probe_jpeg(np.frombuffer(data, np.uint8), limits) == expected


@pytest.mark.parametrize("data", ["text", np.zeros(9, np.float32), np.zeros(9, np.uint8)[::2], 3])
def test_core_refuses_what_it_would_have_to_copy(native_core: ModuleType, data: object) -> None:
    """Text, other dtypes and strided arrays are type errors, never silently converted."""
    with pytest.raises(TypeError):
        native_core.probe_jpeg(data, JpegLimits())


def test_core_is_linked_with_libjpeg_turbo(native_core: ModuleType) -> None:
    """The core names the libjpeg-turbo that it runs with, 2.1 or newer."""
    version = tuple(map(int, native_core.libjpeg_turbo_version().split(".")))

    assert (2, 1) <= version < (5,)
