"""What a pack does to images: sizes, formats, orientation, and what it says of that."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jpegs import ARITHMETIC, decoded, pillow, scene
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as tv

from fastdata.converters.images.coding import Coded, Coding
from fastdata.converters.images.orientation import orientation
from fastdata.converters.images.reductions import eight_bits, several_frames
from fastdata.errors import DecodeError, OptionError
from fastdata.images.pixels import decode
from fastdata.images.probe import probe


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """An image in some format."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def code(data: bytes, **options: Any) -> Coded:
    """A file coded as asked for, without restart runs unless asked."""
    return Coding(**{"run_pixels": None, **options}).code(data, probe(data))


def loaded(data: bytes) -> np.ndarray:
    """Pixels of an NPY file, by numpy."""
    pixels: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    return pixels


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (41, 999), (64, 64), (63, 500), (7, 9)])
@pytest.mark.parametrize("side", [64, 100])
def test_the_shorter_side_is_torchvisions(size: tuple[int, int], side: int) -> None:
    """The new size is that of torchvision's Resize; what is smaller keeps its bytes."""
    data = saved(Image.new("RGB", size, (9, 8, 7)), "PNG")

    found = code(data, resize=str(side))

    if min(size) <= side:
        assert found.image == data
        return
    theirs = tv.get_size(tv.resize(Image.new("RGB", size), [side]))
    assert [found.info.height, found.info.width] == theirs
    assert probe(found.image) == found.info


def test_the_longest_side_and_exact_sizes() -> None:
    """longest: bounds the longer side and enlarges nothing; WxH is met whatever the image was."""
    data = saved(Image.fromarray(scene(300, 200)), "PNG")

    assert code(data, resize="longest:150").info[1:3] == (150, 100)
    assert code(data, resize="longest:300").image == data
    assert code(data, resize="224x112").info[1:3] == (224, 112)
    assert code(data, resize="600x100").info[1:3] == (600, 100)
    assert code(data, resize="300x200").image == data


def test_resampling_is_antialiased() -> None:
    """Every new pixel is the mean over what it covers: of blocks here, by numpy."""
    pixels = scene(120, 90)
    blocks = pixels.reshape(30, 3, 40, 3, 3).mean((1, 3))

    found = loaded(code(saved(Image.fromarray(pixels), "PNG"), resize="40x30", format="raw").image)

    assert np.abs(found - blocks).max() <= 0.51
    stripes = np.zeros((64, 101, 3), np.uint8)
    stripes[:, ::2] = 255
    gray = loaded(code(saved(Image.fromarray(stripes), "PNG"), resize="25x128", format="raw").image)
    assert gray.shape == (128, 25, 3)
    assert np.ptp(gray[:, 1:-1].astype(int)) < 80  # aliased stripes are 0 and 255


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (1000, 1), (123, 77)])
def test_raw_is_an_npy_file(size: tuple[int, int]) -> None:
    """NumPy loads the pixels, Pillow's, without pickle; so do probe and decode."""
    data = pillow(scene(*size), quality=95)

    found = code(data, format="raw")

    assert np.array_equal(loaded(found.image), decoded(data))
    assert (found.image.index(b"\n") + 1) % 64 == 0  # as numpy aligns it
    assert found.info == probe(found.image)
    assert found.info[:3] == ("npy", *size)
    assert np.array_equal(decode(found.image), decoded(data))
    assert code(found.image, format="raw").image == found.image


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("value", range(9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_images_are_turned_upright(kind: str, value: int, order: str) -> None:
    """All eight orientations come out as Pillow turns them, without EXIF and with a note."""
    exif = Image.Exif()
    exif.endian = order
    exif[0x0112] = value
    data = saved(Image.fromarray(scene(29, 17)), kind, exif=exif, lossless=True)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")

    found = code(data, orient="apply", format="raw")
    plain = code(data, orient="apply")

    assert np.array_equal(loaded(found.image), np.asarray(upright))
    assert orientation(data, probe(data).format) == (value or 1)
    turned = value not in (0, 1)
    assert ("turned upright" in found.lossy_notes) == turned
    assert (plain.image == data) != turned
    assert plain.info[1:3] == upright.size
    if turned:
        assert 0x0112 not in Image.open(io.BytesIO(plain.image)).getexif()
        assert "EXIF orientation dropped" in code(data, format="raw").lossy_notes


@pytest.mark.parametrize("value", range(1, 9))
def test_a_tiff_is_upright_already(value: int) -> None:
    """Decoders turn TIFF by its own tag, and the header's size agrees with them."""
    data = saved(Image.fromarray(scene(29, 17)), "TIFF", tiffinfo={274: value})

    assert probe(data)[1:3] == Image.open(io.BytesIO(data)).size
    assert np.array_equal(
        decode(data), np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    )
    assert code(data, orient="apply", run_pixels=32).image == data


def frames(kind: str, count: int, **options: Any) -> bytes:
    """An animation, or a document, of pictures of one colour each."""
    first, *others = (Image.new("RGB", (20, 10), (90 * i, 9, 9)) for i in range(count))
    return saved(first, kind, save_all=True, append_images=others, **options)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_several_frames_the_first_counts(kind: str) -> None:
    """Animations and documents are noted, and their first picture is what is decoded."""
    data = frames(kind, 3)

    assert code(data).lossy_notes == ("first of several frames",)
    assert code(data).image == data
    assert decode(data)[0, 0].max() < 20
    assert code(frames(kind, 1)).lossy_notes == ()


@pytest.mark.parametrize(
    ("image", "kind", "options", "notes"),
    [
        (Image.new("I;16", (9, 9), 40_000), "PNG", {}, ("16 bits to 8",)),
        (Image.new("I;16", (9, 9), 40_000), "TIFF", {}, ("16 bits to 8",)),
        (Image.new("RGBA", (9, 9), (1, 2, 3, 4)), "PNG", {}, ("alpha dropped",)),
        (Image.new("LA", (9, 9), (1, 2)), "PNG", {}, ("alpha dropped",)),
        (Image.new("P", (9, 9)), "PNG", {"transparency": 0}, ("alpha dropped",)),
        (Image.new("RGBA", (9, 9), (1, 2, 3, 4)), "TIFF", {}, ("alpha dropped",)),
        (Image.new("RGBA", (9, 9), (1, 2, 3, 4)), "WEBP", {}, ("alpha dropped",)),
        (Image.new("RGBA", (9, 9), (1, 2, 3, 4)), "WEBP", {"lossless": True}, ("alpha dropped",)),
        (Image.new("RGB", (9, 9)), "PNG", {}, ()),
        (Image.new("RGB", (9, 9)), "TIFF", {}, ()),
        (Image.new("RGB", (9, 9)), "WEBP", {}, ()),
        (Image.new("L", (9, 9)), "BMP", {}, ()),
    ],
)
def test_what_eight_bits_leave_out_is_noted(
    image: Image.Image, kind: str, options: dict[str, Any], notes: tuple[str, ...]
) -> None:
    """Coding anew says what it drops; keeping the bytes drops nothing and says nothing."""
    data = saved(image, kind, **options)

    assert code(data, format="jpeg").lossy_notes == notes
    assert code(data).lossy_notes == ()
    assert code(data).image == data


@pytest.mark.parametrize("image", ["RGB", "L"])
def test_formats(image: str) -> None:
    """What is asked for comes out, at the quality asked for; PNG and raw lose nothing."""
    source = Image.fromarray(scene(64, 48)).convert(image)
    png, jpeg = saved(source, "PNG"), saved(source, "JPEG", quality=95)

    as_png = Image.open(io.BytesIO(code(jpeg, format="png").image))
    as_jpeg = code(png, format="jpeg", quality=90)

    assert np.array_equal(np.asarray(as_png.convert("RGB")), decoded(jpeg))
    assert code(png, format="png").image == png
    assert code(jpeg, format="jpeg").image == jpeg
    assert as_jpeg.info.format == "jpeg"
    assert as_jpeg.info.components == len(source.getbands())
    assert as_jpeg.not_recoded == ""
    theirs = saved(source, "JPEG", quality=90)
    assert np.abs(decoded(as_jpeg.image).astype(int) - decoded(theirs)).max() <= 2
    assert len(code(png, format="jpeg", quality=20).image) < len(as_jpeg.image)


@pytest.mark.parametrize(
    ("kind", "becomes"),
    [
        ("JPEG", "jpeg"),
        ("WEBP", "jpeg"),
        ("PNG", "png"),
        ("BMP", "png"),
        ("GIF", "png"),
        ("TIFF", "png"),
    ],
)
def test_without_a_format_lossy_stays_lossy(kind: str, becomes: str) -> None:
    """A resized image keeps to its kind."""
    assert code(saved(Image.fromarray(scene(64, 48)), kind), resize="32").info.format == becomes


@pytest.mark.usefixtures("native_core")
def test_coded_anew_has_runs() -> None:
    """With restart runs asked for, resized JPEGs have them and the same pixels as without."""
    data = pillow(scene(300, 200), quality=90)

    plain, runs = code(data, resize="100"), code(data, resize="100", run_pixels=32)

    assert plain.info.restart_interval == 0
    assert runs.info.restart_interval > 0
    assert np.array_equal(decoded(plain.image), decoded(runs.image))


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("options", [{"run_pixels": 32}, {"resize": "20"}, {"format": "raw"}])
def test_damaged_jpegs_are_refused(options: dict[str, Any]) -> None:
    """OpenCV makes gray of damaged data; such a file is never coded anew."""
    data = pillow(scene(300, 200), quality=90)

    with pytest.raises(DecodeError):
        code(data[: len(data) // 2] + b"\xff\xd9", **options)


def test_what_cannot_be_decoded_is_refused() -> None:
    """With restart runs every image is decoded once: readers need not find out."""
    data = bytearray(saved(Image.fromarray(scene(64, 48)), "PNG"))
    data[len(data) // 2] ^= 0x55
    assert code(bytes(data)).image == data

    with pytest.raises(DecodeError):
        code(bytes(data), run_pixels=32)


def test_a_jpeg_holds_no_longer_side() -> None:
    """A side that JPEG has no room for is an error that says so."""
    data = saved(Image.new("L", (65_501, 1)), "PNG")

    with pytest.raises(DecodeError, match="65500"):
        code(data, format="jpeg")


def test_arithmetic_coding_goes_through() -> None:
    """A rare kind of JPEG is resized like any other."""
    assert code(ARITHMETIC, resize="12x8").info[1:3] == (12, 8)


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"resize": text}
            for text in ("", "0", "x", "224x", "1x0", "longest:", "65536", "9x65536")
        ),
        {"resize": "65535x65535"},
        {"quality": 0},
        {"quality": 101},
        {"format": "webp"},
        {"orient": "yes"},
        {"damaged": "no"},
        {"run_pixels": 7},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    """The error names the option."""
    with pytest.raises(OptionError, match=next(iter(options))):
        Coding(**options)


@pytest.mark.parametrize(
    "coding",
    [
        Coding(),
        Coding(None),
        Coding(16, "256", 80, "jpeg", "apply"),
        Coding(32, None, 90, "raw", "keep"),
        Coding(None, "1x1", 70, None, "keep"),
        Coding(damaged="keep"),
    ],
)
def test_a_manifest_states_the_coding(coding: Coding) -> None:
    """Options are scalars, and the coding comes back from them; quality only where it counts."""
    options = coding.options()

    assert Coding.from_options({**options, "seed": 3}) == coding
    assert Coding.from_options({"indexed": True}) == Coding(None)
    assert (options["quality"] is None) == (
        coding in (Coding(), Coding(None), Coding(format="raw"), Coding(damaged="keep"))
    )


MAKERS: dict[str, Callable[[], bytes]] = {
    "gif": lambda: frames("GIF", 2),
    "png": lambda: frames("PNG", 2, exif=exif()),
    "webp": lambda: frames("WEBP", 2, exif=exif()),
    "tiff": lambda: saved(Image.new("RGBA", (9, 9)), "TIFF"),
    "jpeg": lambda: saved(Image.new("RGB", (9, 9)), "JPEG", exif=exif()),
}


def exif() -> Image.Exif:
    """Orientation 6 among other tags."""
    tags = Image.Exif()
    tags[0x010F], tags[0x0112] = "maker", 6
    return tags


@pytest.mark.parametrize("kind", MAKERS)
def test_damaged_structures_are_read_without_an_error(kind: str) -> None:
    """Flipped bits and cuts change what is said of a file, and raise nothing."""
    whole = MAKERS[kind]()
    rng = np.random.default_rng(5)
    for _ in range(1500):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        cut = bytes(data[: rng.integers(26, len(data) + 1)])
        several_frames(cut, kind)
        eight_bits(cut, kind)
        assert 1 <= orientation(cut, kind) <= 8


def test_npy_headers_are_read_strictly() -> None:
    """Other types, orders, shapes and versions are refused with what was found; none is run."""
    good = io.BytesIO()
    np.save(good, scene(5, 4))
    assert probe(good.getvalue())[:4] == ("npy", 5, 4, 3)
    others: list[np.ndarray] = [
        np.zeros((4, 5), np.uint8),
        np.zeros((4, 5, 4), np.uint8),
        np.zeros((4, 5, 3), np.float32),
        np.asfortranarray(scene(5, 4)),
        np.array([{}, None, 3], object),
    ]
    for array in others:
        buffer = io.BytesIO()
        np.save(buffer, array)
        with pytest.raises(DecodeError, match=r"not \(H, W, 3\) uint8"):
            probe(buffer.getvalue())
    for data in (good.getvalue() + b"x", good.getvalue()[:-1]):
        with pytest.raises(DecodeError, match=r"damaged NPY: .* bytes instead of 188"):
            probe(data)
    with pytest.raises(DecodeError, match=r"version 3.0"):
        probe(b"\x93NUMPY\3\0" + good.getvalue()[8:])


def test_the_core_is_asked_only_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the core images are coded anew all the same, to the same pixels."""
    data = pillow(scene(100, 80), quality=90)
    expected = code(data, resize="40").image
    monkeypatch.setattr("fastdata.native.load", lambda: None)

    assert code(data, resize="40").image == expected
