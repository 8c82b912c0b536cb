"""Pixels of every kind of file against Pillow's, loaded as it is and packed."""

import io
import struct
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_images import (
    HEIGHT,
    WIDTH,
    bmp,
    bmp_in_runs,
    bmp_of_masks,
    bmp_of_os2,
    gif,
    noise,
    png,
    saved,
    sun,
    tiff,
    transparency,
)
from PIL import Image, ImageOps, features

import fastdata as fd
from fastdata.converters.images.coding import Coding
from fastdata.converters.pack import pack
from fastdata.errors import DecodeError
from fastdata.images.pillow import FORMATS, pillow_format
from fastdata.images.pixels import decode
from fastdata.images.probe import probe

# the oracle's, about palettes whose transparency it drops, and tags that it passes over
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

BASE = Image.fromarray(noise(HEIGHT, WIDTH, 4))
PALETTE = BASE.convert("RGB").quantize(16)
FRAMES = [Image.fromarray(noise(HEIGHT, WIDTH, 4) // (1 + i)) for i in range(3)]
MODES = ("1", "L", "LA", "P", "RGB", "RGBA")

FILES: dict[str, bytes] = {
    **{
        f"{kind} {mode}": saved(BASE.convert(mode), kind)
        for kind, modes in {
            "PNG": MODES,
            "GIF": ("1", "L", "P", "RGB", "RGBA"),
            "BMP": ("1", "L", "P", "RGB", "RGBA"),
            "TIFF": (*MODES, "CMYK", "YCbCr", "LAB"),
            "WEBP": ("RGB", "RGBA"),
        }.items()
        for mode in modes
    },
    **{
        f"PNG type {colour} of {bits} bits, interlaced {passes}": png(
            colour, bits, interlaced=passes
        )
        for colour, bits in [
            *((0, 1), (0, 2), (0, 4), (0, 8), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8)),
            *((4, 8), (6, 8), (6, 16)),
        ]
        for passes in (False, True)
    },
    "PNG palette with tRNS": png(3, 8, extra=transparency(noise(200).tobytes())),
    "PNG gray with tRNS": png(0, 8, extra=transparency(b"\0\7")),
    "PNG RGB with tRNS": png(2, 8, extra=transparency(bytes(6))),
    "PNG that moves": saved(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:]),
    "PNG that moves over a picture of its own": saved(
        FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:], default_image=True
    ),
    "PNG that moves and blends": saved(
        FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:], blend=1
    ),
    "GIF with transparency": gif(transparent=3),
    "GIF with a background": gif(background=5, offset=True),
    "GIF with both": gif(transparent=3, background=5, offset=True),
    "GIF with a background beyond its palette": gif(background=200, offset=True),
    "GIF interlaced": gif(interlaced=True),
    "GIF of several frames": saved(
        FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:], disposal=2
    ),
    "WebP lossless": saved(BASE, "WEBP", lossless=True, exact=True),
    "WebP that moves": saved(
        FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], lossless=True
    ),
    "BMP from the top": bmp(24, 0, noise(HEIGHT, 88).tobytes(), height=-HEIGHT),
    "BMP of 4 bits": bmp(4, 0, noise(HEIGHT, 16).tobytes(), extra=noise(16, 4).tobytes()),
    "BMP of 32 bits": bmp(32, 0, noise(HEIGHT, 4 * WIDTH).tobytes()),
    "BMP 555": bmp(16, 0, noise(HEIGHT, 60).tobytes()),
    "BMP 565": bmp_of_masks(0xF800, 0x7E0, 0x1F, bits=16),
    "BMP with masks": bmp_of_masks(0xFF000000, 0xFF0000, 0xFF00, bits=32),
    "BMP in runs": bmp_in_runs(8),
    "BMP in short runs": bmp_in_runs(4),
    "BMP of OS/2": bmp_of_os2(),
    **{
        f"TIFF {compression}": saved(BASE.convert("RGB"), "TIFF", compression=compression)
        for compression in ("jpeg", "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits")
    },
    "TIFF in faxes": saved(BASE.convert("1"), "TIFF", compression="group4"),
    "TIFF big": saved(BASE.convert("RGB"), "TIFF", big_tiff=True),
    "TIFF white is zero": tiff(8, 1, 0),
    "TIFF of 2 bits": tiff(2, 1, 1),
    "TIFF of 4 bits": tiff(4, 1, 0),
    "TIFF in tiles": tiff(8, 3, 2, tile=16),
    "TIFF in planes": tiff(8, 3, 2, planes=2),
    "TIFF with a tag that leads nowhere": tiff(8, 3, 2, further=[(305, [10**9, 10**9])]),
    "TIFF without lengths of strips": tiff(8, 1, 1).replace(b"\x17\1\4\0", b"\xff\xf0\4\0"),
    "TIFF RGBA": tiff(8, 4, 2),
    "TIFF CMYK": tiff(8, 4, 5),
    "TIFF RGB of 16 bits": tiff(16, 3, 2),
    "TIFF RGBA of 16 bits": tiff(16, 4, 2, big_endian=True),
    **{
        f"TIFF turned {value}": saved(BASE.convert("RGB"), "TIFF", tiffinfo={274: value})
        for value in range(2, 9)
    },
}

PACKED_ONLY: dict[str, bytes] = {
    **{f"{mode}.tga": saved(BASE.convert(mode), "TGA") for mode in MODES},
    "runs.tga": saved(BASE, "TGA", compression="tga_rle"),
    "1.pbm": saved(BASE.convert("1"), "PPM"),
    "L.pgm": saved(BASE.convert("L"), "PPM"),
    "RGB.ppm": saved(BASE.convert("RGB"), "PPM"),
    "plain.ppm": b"P3 2 1 255\n1 2 3 250 251 252\n",
    "RGB.jp2": saved(BASE.convert("RGB"), "JPEG2000"),
    "lossy.j2k": saved(
        BASE.convert("L"), "JPEG2000", no_jp2=True, irreversible=True, quality_layers=[5]
    ),
    "RGB.sgi": saved(BASE.convert("RGB"), "SGI"),
    "RGB.pcx": saved(BASE.convert("RGB"), "PCX"),
    "P.pcx": saved(PALETTE, "PCX"),
    "RGBA.ico": saved(BASE, "ICO", sizes=[(16, 12)]),
    "RGB.ras": sun(noise(HEIGHT, 30, 3)),
}
if features.check("avif"):
    PACKED_ONLY["RGB.avif"] = saved(BASE.convert("RGB"), "AVIF", quality=60)
    PACKED_ONLY["RGBA.avif"] = saved(BASE, "AVIF", quality=60)


def pillow(data: bytes) -> np.ndarray:
    """What torchvision's ImageFolder makes of a file."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def packed(data: bytes, name: str = "", **options: Any) -> bytes:
    """The image that a pack stores."""
    return Coding(**options).code_file(data, name).image


@pytest.mark.parametrize("name", FILES)
def test_loaded_pixels_are_pillows(name: str) -> None:
    """A folder's image has the pixels that torchvision's ImageFolder gives, whatever its kind."""
    data = FILES[name]

    pixels = decode(data)

    assert np.array_equal(pixels, pillow(data))
    assert probe(data)[1:3] == pixels.shape[1::-1]


@pytest.mark.parametrize("name", FILES)
def test_packed_pixels_are_pillows(name: str) -> None:
    """What is packed has the same pixels, in a format that needs no Pillow to be loaded."""
    data = FILES[name]
    image = packed(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "PIL.Image", None)
        for known in FORMATS.values():
            patch.setitem(sys.modules, known.opener.rpartition(".")[0], None)
        pixels = decode(image)

    assert np.array_equal(pixels, pillow(data))


@pytest.mark.parametrize("name", PACKED_ONLY)
def test_what_pillow_alone_reads_is_packed_as_png(name: str) -> None:
    """Such a file becomes a PNG with Pillow's pixels, is counted, and is not loaded unpacked."""
    data = PACKED_ONLY[name]

    coded = Coding().code_file(data, name)

    assert coded.info.format == "png"
    assert np.array_equal(decode(coded.image), pillow(data))
    assert any(note.endswith(" coded to PNG") for note in coded.lossy_notes)
    with pytest.raises(DecodeError):
        probe(data)


def test_heic_is_packed_as_png() -> None:
    """HEIC, as phones write it, becomes PNG with the pixels that pillow-heif gives."""
    heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    heif.from_pillow(BASE.convert("RGB").resize((64, 48))).save(buffer, quality=60)
    data = buffer.getvalue()

    coded = Coding().code_file(data, "photo.heic")

    expected = np.asarray(heif.open_heif(data, convert_hdr_to_8bit=True).to_pillow())
    assert np.array_equal(decode(coded.image), expected)


def test_a_folder_of_all_kinds_is_packed_and_loaded(tmp_path: Path) -> None:
    """`pack` takes every file of such a folder, and the loader gives Pillow's pixels for each."""
    folder = tmp_path / "src"
    folder.mkdir()
    expected = []
    for number, (name, data) in enumerate({**FILES, **PACKED_ONLY}.items()):
        (folder / f"{number:03}{Path(name).suffix}").write_bytes(data)
        expected.append(pillow(data))

    report = pack(folder, tmp_path / "out", shuffle=False)
    side = 64

    assert report.skipped == ()
    crop = fd.CenterCrop(side)
    batches = fd.Loader(tmp_path / "out", len(expected), crop=crop, shuffle=False)
    (batch,) = batches
    for pixels, wanted in zip(batch.images.permute(0, 2, 3, 1).numpy(), expected, strict=True):
        top, left = ((side - length) // 2 for length in wanted.shape[:2])
        found = pixels[top : top + wanted.shape[0], left : left + wanted.shape[1]]
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("orient", ["keep", "apply"])
def test_orientation_goes_along(orient: str) -> None:
    """EXIF of a file that becomes PNG is applied where that is asked for, and kept elsewhere."""
    if not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    exif = Image.Exif()
    exif[274] = 6
    data = saved(BASE.convert("RGB"), "AVIF", exif=exif)

    image = packed(data, orient=orient)

    with Image.open(io.BytesIO(data)) as theirs, Image.open(io.BytesIO(image)) as ours:
        assert ours.getexif().get(274) == (None if orient == "apply" else 6)
        upright = ImageOps.exif_transpose(theirs) if orient == "apply" else theirs
        assert np.array_equal(decode(image), np.asarray(upright.convert("RGB")))


@pytest.mark.parametrize("kind", [3, 4, 9])
@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_may_be_any_integer(order: str, kind: int) -> None:
    """EXIF that states the orientation as another type than SHORT turns pixels as in Pillow."""
    value = struct.pack(order + ("H2x" if kind == 3 else "I"), 6)
    head = struct.pack(order + "2sHIHHHI", b"II" if order == "<" else b"MM", 42, 8, 1, 274, kind, 1)
    data = saved(BASE.convert("RGB"), "PNG", exif=head + value + bytes(4))

    with Image.open(io.BytesIO(data)) as theirs:
        upright = np.asarray(ImageOps.exif_transpose(theirs).convert("RGB"))

    assert upright.shape[:2] == BASE.size
    assert np.array_equal(decode(packed(data, orient="apply")), upright)


def test_what_is_lost_is_noted() -> None:
    """A GIF's further frames and its transparency, and a TGA's alpha, are counted."""
    animation = saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:])

    for data, kind, notes in [
        (animation, "GIF", {"first of several frames"}),
        (gif(transparent=3), "GIF", {"alpha dropped"}),
        (saved(BASE, "TGA"), "TGA", {"alpha dropped"}),
        (tiff(16, 4, 2), "TIFF", {"alpha dropped", "16 bits to 8"}),
        (bmp_of_os2(), "BMP", set()),
    ]:
        found = Coding().code_file(data, f"picture.{kind}").lossy_notes
        assert set(found) == {f"{kind} coded to PNG"} | notes


def test_bytes_are_kept_on_request() -> None:
    """With ``--keep-bytes`` a format that a loader reads by Pillow stays as it is."""
    data = gif(transparent=3)

    assert packed(data, run_pixels=None) == data


@pytest.mark.parametrize("name", ["GIF P", "L.tga"])
def test_without_pillow_the_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Pillow is missing, a file that needs it is left out with what to install."""
    data = (FILES | PACKED_ONLY)[name]
    for known in FORMATS.values():
        monkeypatch.setitem(sys.modules, known.opener.rpartition(".")[0], None)

    with pytest.raises(DecodeError, match=r"pip install 'fastdata\[formats\]'"):
        packed(data, name)


def test_sizes_are_checked_before_pixels_are_decoded() -> None:
    """A TGA of 18 bytes that claims 3.6 billion pixels is refused, and Pillow does not warn."""
    data = struct.pack("<BBB5xHHHHBB", 0, 0, 2, 0, 0, 60_000, 60_000, 24, 0)

    with pytest.raises(DecodeError, match="60000x60000 pixels, over the limit"):
        packed(data, "bomb.tga")


def test_pillow_does_not_warn_during_a_pack(tmp_path: Path) -> None:
    """Odd metadata, such as an icon that is larger than its list says, are no warning."""
    data = bytearray(saved(BASE, "ICO", sizes=[(16, 12)]))
    data[6:8] = bytes([9, 9])
    (tmp_path / "src").mkdir()
    (tmp_path / "src/odd.ico").write_bytes(data)

    report = pack(tmp_path / "src", tmp_path / "out")

    assert report.samples == 1


@pytest.mark.parametrize(
    "head", [b"%!PS-Adobe-3.0 EPSF-3.0", b"%PDF-1.7", b"\xd7\xcd\xc6\x9a", b"qoif"]
)
def test_only_listed_formats_reach_pillow(head: bytes) -> None:
    """Nothing makes Pillow open a file by a decoder that is not on the list, such as EPS's."""
    assert pillow_format(head + bytes(60)) is None
    with pytest.raises(DecodeError, match=r"not an image|cannot read this TGA"):
        packed(head + bytes(60), "picture.tga")


@pytest.mark.parametrize("name", [*FILES, *PACKED_ONLY])
def test_damage_is_a_decode_error(name: str) -> None:
    """Bytes that are changed or cut off give pixels or a DecodeError, and nothing else."""
    if name.endswith(".avif"):
        pytest.skip("its decoder is another project's to test")
    data = (FILES | PACKED_ONLY)[name]
    rng = np.random.default_rng(len(name))
    for _ in range(20):
        changed = bytearray(data)
        for at in rng.integers(len(data), size=rng.integers(1, 4)):
            changed[at] ^= 1 << int(rng.integers(8))
        for broken in (bytes(changed), bytes(changed[: rng.integers(1, len(data))])):
            try:
                decode(packed(broken, name))
            except DecodeError:
                continue


def test_members_of_a_tar_are_packed_as_png(tmp_path: Path) -> None:
    """A WebDataset of JPEG 2000 is packed like a folder of them."""
    data = PACKED_ONLY["RGB.jp2"]
    with tarfile.open(tmp_path / "in.tar", "w") as tar:
        for name, content in (("one.cls", b"3"), ("one.jp2", data)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

    pack(tmp_path / "in.tar", tmp_path / "out")

    (sample,) = fd.open(tmp_path / "out")
    assert np.array_equal(np.asarray(sample.image), pillow(data))
