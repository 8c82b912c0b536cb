"""The native core's JPEG decoding and transcoding, against Pillow to the bit."""

import base64
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jpegs
import numpy as np
import pytest
from coded_jpegs import coded
from filling import DECODE, LIMITS, Box, Decoder, Failure
from jpegs import Pixels, scene
from PIL import Image

from fastdata.errors import DecodeError

HAS_RUNS = (None, "has restart runs already", False, False)
SIZES = [(1, 1), (2, 3), (5, 4), (7, 9), (8, 8), (9, 17), (16, 16), (33, 15), (70, 50), (129, 83)]


@pytest.fixture(params=["ours", "libjpeg"])
def decoder(native_core: ModuleType, tmp_path: Path, request: pytest.FixtureRequest) -> Decoder:
    """One thread for all images of a test, once with each of the core's decoders."""
    return Decoder(native_core, tmp_path, libjpeg=request.param == "libjpeg")


def _transcode(core: ModuleType, data: bytes, run_pixels: int = 16) -> bytes:
    runs, reason, *_ = core.transcode_jpeg(data, run_pixels, LIMITS)
    assert isinstance(runs, bytes), reason
    return runs


def _boxes(width: int, height: int, count: int) -> Iterator[Box]:
    """The whole, the corners' pixels, and random boxes with a liking for edges and slivers."""
    rng = np.random.default_rng([width, height])
    yield 0, 0, width, height
    for x in {0, width - 1}:
        for y in {0, height - 1}:
            yield x, y, 1, 1
    for _ in range(count):
        w, h = (int(rng.integers(1, side + 1)) for side in (width, height))
        if rng.random() < 0.3:
            w = min(w, int(rng.integers(1, 5)))
        if rng.random() < 0.3:
            h = min(h, int(rng.integers(1, 5)))
        x = int(rng.choice([0, width - w, int(rng.integers(0, width - w + 1))]))
        y = int(rng.choice([0, height - h, int(rng.integers(0, height - h + 1))]))
        yield x, y, w, h


def _check(decoder: Decoder, data: bytes, expected: Pixels, count: int = 8) -> None:
    height, width = expected.shape[:2]
    for x, y, w, h in _boxes(width, height, count):
        found = decoder.region(data, (x, y, w, h))
        assert np.array_equal(found, expected[y : y + h, x : x + w]), (x, y, w, h, found)


@pytest.mark.parametrize("kind", jpegs.MAKERS)
def test_regions_are_exact(native_core: ModuleType, decoder: Decoder, kind: str) -> None:
    """Any region, before and after transcoding, is that of Pillow's whole image, to the bit."""
    for width, height in SIZES:
        data = jpegs.MAKERS[kind](width, height)
        expected = jpegs.decoded(data)
        _check(decoder, data, expected)

        runs, reason, *_ = native_core.transcode_jpeg(data, 16, LIMITS)

        assert reason in {"", HAS_RUNS[1], "more than 10 blocks an MCU"}
        if runs is not None:
            assert np.array_equal(jpegs.decoded(runs), expected)
            assert native_core.transcode_jpeg(runs, 16, LIMITS) == HAS_RUNS
            _check(decoder, runs, expected)


@pytest.mark.parametrize("run_pixels", [1, 8, 24, 64, 10**6])
def test_any_length_of_runs_is_exact(
    native_core: ModuleType, decoder: Decoder, run_pixels: int
) -> None:
    """However long the runs are, and however many MCUs a row has, pixels stay."""
    for width in (8 * 47, 8 * 63 - 3, 16 * 13):
        for sampling in ("4:4:4", "4:2:0"):
            data = jpegs.MAKERS[f"{sampling} baseline"](width, 50)
            runs = _transcode(native_core, data, run_pixels)
            _check(decoder, runs, jpegs.decoded(data), 12)


@pytest.mark.parametrize("interval", [1, 2, 7, 12, 13, 14, 29, 10_000])
@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_any_restart_interval_is_exact(decoder: Decoder, sampling: str, interval: int) -> None:
    """Runs of other tools end anywhere: within rows, with them, or rows later."""
    mcu_width = 8 if sampling == "4:4:4" else 16
    image = Image.fromarray(scene(13 * mcu_width - 5, 77, 3))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85, subsampling=sampling, restart_marker_blocks=interval)
    _check(decoder, file.getvalue(), jpegs.decoded(file.getvalue()), 20)


@pytest.mark.parametrize(
    "factors",
    [
        *([(1, 1)], [(2, 2)], [(3, 1)]),  # of a single component they do not matter
        *([(2, 2), (1, 1), (1, 1)], [(4, 2), (1, 1), (1, 1)], [(1, 4), (1, 1), (1, 1)]),
        *([(1, 1), (2, 2), (2, 2)], [(1, 2), (2, 1), (2, 2)], [(2, 1), (1, 2), (1, 1)]),
        *([(3, 1), (1, 1), (1, 1)], [(3, 1), (1, 1), (1, 2)], [(1, 3), (1, 1), (1, 3)]),
        *([(2, 2), (2, 1), (1, 2)], [(4, 1), (2, 1), (1, 1)]),
    ],
    ids=str,
)
def test_any_sampling_is_exact(
    native_core: ModuleType, decoder: Decoder, factors: list[tuple[int, int]]
) -> None:
    """Whatever planes are subsampled, and however few samples they are left with."""
    for width, height, interval in [(1, 1, 0), (3, 9, 1), (5, 40, 3), (47, 5, 2), (95, 61, 5)]:
        data = coded(width, height, factors, interval)
        expected = jpegs.decoded(data)
        _check(decoder, data, expected)
        runs, *_ = native_core.transcode_jpeg(data, 16, LIMITS)
        if runs is not None:
            _check(decoder, runs, expected)


def test_factors_that_do_not_divide_are_refused(decoder: Decoder) -> None:
    """As libjpeg refuses them."""
    failure = decoder.region(coded(40, 40, [(3, 1), (2, 1), (1, 1)]), (0, 0, 40, 40))

    assert isinstance(failure, Failure)
    assert failure.kind == DECODE


def test_images_without_data_are_refused(native_core: ModuleType, decoder: Decoder) -> None:
    """Where there is next to nothing to read, however large the image says it is."""
    for width, height in [(16, 16), (32, 16), (8000, 8000)]:
        data = coded(16, 16, [(4, 2), (1, 1), (1, 1)])
        frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
        size = struct.pack(">HH", height, width)
        empty = data[: frame + 5] + size + data[frame + 9 : scan + 14] + b"\xff\xd9"

        assert isinstance(decoder.region(empty, (0, 0, width, height)), Failure)
        with pytest.raises(DecodeError):
            native_core.transcode_jpeg(empty, 16, LIMITS)


def test_transcoding_makes_baseline_runs(native_core: ModuleType) -> None:
    """Progressive becomes baseline of one scan with a restart interval; size and sampling stay."""
    data = jpegs.MAKERS["4:2:0 progressive"](320, 90)
    before = native_core.probe_jpeg(data, LIMITS)
    runs = _transcode(native_core, data, 32)
    after = native_core.probe_jpeg(runs, LIMITS)

    assert after[:4] == before[:4]
    progressive, arithmetic, interval, scans = after[4:]
    assert (progressive, arithmetic, interval, scans) == (False, False, 2, 1)
    assert b"\xff\xd0" in runs


def test_arithmetic_coding_becomes_huffman(native_core: ModuleType, decoder: Decoder) -> None:
    """An arithmetically coded image keeps its pixels, and anyone can decode it then."""
    runs = _transcode(native_core, jpegs.ARITHMETIC)

    whole = decoder.region(jpegs.ARITHMETIC, (0, 0, 24, 16))
    assert np.array_equal(whole, jpegs.decoded(runs))
    assert native_core.probe_jpeg(runs, LIMITS)[5] is False


def test_transcoding_keeps_what_colours_need(native_core: ModuleType) -> None:
    """EXIF, ICC and JFIF survive; comments, other segments and bytes behind the image go."""
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    profile = b"profile" * 20_000  # takes several segments
    image = Image.fromarray(scene(40, 30))
    image.save(out, "JPEG", exif=exif, icc_profile=profile, comment=b"secret", dpi=(72, 300))
    data = out.getvalue()
    data = data[:2] + b"\xff\xed" + struct.pack(">H", 12) + b"Photoshop " + data[2:] + b"trailer"

    runs = _transcode(native_core, data, 8)

    after = Image.open(io.BytesIO(runs))
    assert after.getexif()[0x0112] == 6
    assert after.info["icc_profile"] == profile
    assert after.info["dpi"] == (72, 300)
    assert b"secret" not in runs
    assert b"Photoshop" not in runs
    assert runs.endswith(b"\xff\xd9")


@pytest.mark.parametrize(("kind", "transform"), [("cmyk", 0), ("ycck", 2)])
def test_transcoding_keeps_adobe(native_core: ModuleType, kind: str, transform: int) -> None:
    """The Adobe segment, on which the colours of CMYK and YCCK hang, survives."""
    runs = _transcode(native_core, jpegs.MAKERS[kind](30, 20))

    assert Image.open(io.BytesIO(runs)).info["adobe_transform"] == transform


@pytest.mark.parametrize("scans", range(1, 10))
def test_unfinished_progressive_is_kept(
    native_core: ModuleType, decoder: Decoder, scans: int
) -> None:
    """A progressive image without its last scans is kept as it is; its regions agree anyway."""
    data = jpegs.unfinished(jpegs.MAKERS["4:2:0 progressive"](70, 50), scans)

    reason = "progressive without its last refinement scan"
    assert native_core.transcode_jpeg(data, 16, LIMITS) == (None, reason, False, False)
    whole = decoder.region(data, (0, 0, 70, 50))
    assert isinstance(whole, np.ndarray)
    _check(decoder, data, whole)


def test_16_bit_tables_are_kept(native_core: ModuleType, decoder: Decoder) -> None:
    """Quantisation steps over 255 do not fit baseline; such an image is kept, and decodes."""
    data = jpegs.pillow(scene(40, 40), qtables=[[400] * 64, [900] * 64])

    reason = "quantisation tables that baseline lacks"
    assert native_core.transcode_jpeg(data, 16, LIMITS) == (None, reason, False, False)
    _check(decoder, data, jpegs.decoded(data))


def test_coefficients_beyond_baseline_are_kept(native_core: ModuleType, decoder: Decoder) -> None:
    """DC values 3000 apart have no code in baseline; such an image is kept, and decodes.

    No encoder at hand makes one, so here is one: gray, 32 x 8 pixels, four blocks, arithmetic.
    """
    tables = bytes(range(1, 65))
    data = b"".join(
        (
            b"\xff\xd8\xff\xdb\x00\x43\x00" + tables,
            bytes.fromhex("ffc9000b0800080020010111 00ffcc0006001010 05ffda000801010000 3f00"),
            base64.b64decode("/wD7jktiBlzhTDb/2Q=="),
        )
    )

    found = native_core.transcode_jpeg(data, 16, LIMITS)
    assert found == (None, "coefficients beyond baseline's range", False, False)
    _check(decoder, data, jpegs.decoded(data))


def test_large_mcus_are_kept(native_core: ModuleType, decoder: Decoder) -> None:
    """More than ten blocks make no MCU of baseline; such an image is kept, and decodes."""
    data = jpegs.eleven_blocks(70, 50)

    found = native_core.transcode_jpeg(data, 16, LIMITS)
    assert found == (None, "more than 10 blocks an MCU", False, False)
    _check(decoder, data, jpegs.decoded(data))


def test_fill_bytes_before_markers(decoder: Decoder) -> None:
    """Any number of 0xff may precede a marker (ITU-T T.81, B.1.1.2)."""
    data = jpegs.MAKERS["4:2:0 restart 1"](60, 45)
    at = data.index(b"\xff\xda")
    padded = bytearray(data[:at])
    for byte, following in zip(data[at:], data[at + 1 :] + b"\0", strict=True):
        if byte == 0xFF and following != 0:
            padded += b"\xff\xff"
        padded.append(byte)

    _check(decoder, bytes(padded), jpegs.decoded(data))


def test_fill_bytes_within_the_data(native_core: ModuleType, tmp_path: Path) -> None:
    """They are damage there: libjpeg-turbo makes pixels of them that depend on its own inside."""
    decoder = Decoder(native_core, tmp_path)
    data = jpegs.MAKERS["4:2:0 baseline"](160, 120)
    at = data.index(b"\xff\x00", data.index(b"\xff\xda"))
    damaged = data[:at] + b"\xff\xff" + data[at:]

    assert isinstance(decoder.region(damaged, (0, 0, 160, 120)), Failure)
    with pytest.raises(DecodeError, match="Corrupt JPEG data"):
        native_core.transcode_jpeg(damaged, 16, LIMITS)


@pytest.mark.parametrize(
    "box",
    [
        *[(0, 0, 21, 10), (0, 0, 20, 11), (-1, 0, 5, 5), (0, -1, 5, 5), (20, 0, 1, 1)],
        *[(5, 5, 5, 6), (2**32, 0, 5, 5), (0, -(2**32), 5, 5), (2**31 - 2, 0, 5, 5)],
        *[(2**63 - 1, 0, 2, 2), (-(2**63), 0, 2, 2)],
    ],
)
def test_regions_outside_are_refused(decoder: Decoder, box: Box) -> None:
    """A region that leaves the image, however far, is a failure to decode that says so."""
    failure = decoder.region(jpegs.MAKERS["4:4:4 baseline"](20, 10), box)

    assert isinstance(failure, Failure)
    assert failure.kind == DECODE
    assert b"20x10" in failure.message


def _damage(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "text", b"not a JPEG"
    yield "header only", data[:30]
    yield "half", data[: len(data) // 2]
    frame, tables = data.index(b"\xff\xc0"), data.index(b"\xff\xc4")
    quantisers, scan = data.index(b"\xff\xdb"), data.index(b"\xff\xda")
    yield "no frame", data[:frame] + data[frame + 19 :]
    yield "no quantisation tables", data[:quantisers] + data[frame:]
    yield "bomb", data[: frame + 5] + b"\xff\xdc\xff\xdc" + data[frame + 9 :]
    yield "bad table", data[: tables + 5] + b"\xff" * 8 + data[tables + 13 :]
    yield "marker in the scan", data[: scan + 40] + b"\xff\xd3" + data[scan + 42 :]


def test_no_state_survives_an_error(decoder: Decoder) -> None:
    """A good image after a bad one, on the same thread, is what it was."""
    codings = ("baseline", "progressive", "restart 1")
    good = [jpegs.MAKERS[f"{s} {c}"](60, 45) for s in ("4:4:4", "4:2:0") for c in codings]
    expected = [jpegs.decoded(data) for data in good]
    for name, bad in _damage(good[0]):
        for data, whole in zip(good, expected, strict=True):
            failure = decoder.region(bad, (0, 0, 60, 45))
            assert isinstance(failure, Failure), name
            assert failure.kind == DECODE, name
            assert np.array_equal(decoder.region(data, (3, 3, 50, 40)), whole[3:43, 3:53]), name


@pytest.mark.parametrize("kind", ["4:2:0 baseline", "4:2:0 progressive", "gray restart", "ycck"])
def test_damage_is_pixels_or_a_failure(
    native_core: ModuleType, decoder: Decoder, kind: str
) -> None:
    """Truncations and flipped bits give pixels or a failure to decode, and leave no trace."""
    rng = np.random.default_rng(0)
    original = jpegs.MAKERS[kind](48, 40)
    whole = jpegs.decoded(original)
    refused = 0
    for good in (original, _transcode(native_core, original)):
        for number in range(150):
            bad = bytearray(good)
            if number % 3 == 0:
                del bad[int(rng.integers(len(bad))) :]
            else:
                for at in rng.integers(2, len(bad), 1 + number % 3):
                    bad[at] ^= 1 << rng.integers(8)
            x, y = int(rng.integers(30)), int(rng.integers(20))
            found = decoder.region(bytes(bad), (x, y, 18, 20))
            if isinstance(found, Failure):
                assert found.kind == DECODE, found
                refused += 1
            if number % 10 == 0:
                assert np.array_equal(decoder.region(good, (0, 0, 48, 40)), whole)
    assert 60 < refused < 300


def test_bombs_are_refused(decoder: Decoder) -> None:
    """A header that claims billions of pixels, and thousands of scans, are failures at once."""
    data = jpegs.pillow(scene(60, 45, 1), progressive=True)
    frame, last = data.index(b"\xff\xc2"), jpegs.scan_starts(data)[-1]
    side = (65_500).to_bytes(2, "big")
    scans = data[:last] + data[last:-2] * 3000 + b"\xff\xd9"
    for bomb in (data[: frame + 5] + side + side + data[frame + 9 :], scans):
        failure = decoder.region(bomb, (0, 0, 8, 8))

        assert isinstance(failure, Failure)
        assert failure.kind == DECODE
        assert b"limit" in failure.message
