"""Decoding and cropping against Pillow and torchvision."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms.v2 import functional as tv

from fastdata.batch.decode import decode, decode_crop
from fastdata.errors import DecodeError
from fastdata.plan.crop import CenterCrop, CropPlan, RandomResizedCrop


def _picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth colours with edges."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (max(1, height // 9), max(1, width // 9), 3), np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    image.paste((250, 20, 30), (width // 3, 0, width // 2, height // 2))
    return image


def _encoded(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, **{"format": "JPEG", "quality": 92, **options})
    return buffer.getvalue()


def _pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def _crop(data: bytes, plan: CropPlan, shape: tuple[int, int]) -> np.ndarray:
    out = np.full((*shape, 3), 77, np.uint8)
    decode_crop(data, plan, 0, out)
    return out


def _difference(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_equals_pillow(subsampling: int, progressive: bool) -> None:
    """A JPEG of any common sampling decodes to Pillow's pixels."""
    data = _encoded(_picture(203, 101), subsampling=subsampling, progressive=progressive)

    assert _difference(decode(data), _pillow(data)) == 0


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"format": "PNG"}, 0),
        ({"format": "WEBP", "lossless": True}, 0),
        ({"format": "BMP"}, 0),
        ({"format": "TIFF"}, 0),
        ({"format": "GIF"}, 0),
    ],
)
def test_formats_equal_pillow(options: dict[str, Any], tolerance: int) -> None:
    """Other formats decode to Pillow's pixels."""
    data = _encoded(_picture(60, 40), **options)

    assert _difference(decode(data), _pillow(data)) <= tolerance


@pytest.mark.parametrize(("mode", "tolerance"), [("L", 0), ("CMYK", 1)])
def test_modes_equal_pillow(mode: str, tolerance: int) -> None:
    """Grayscale becomes three equal channels, CMYK becomes Pillow's RGB within 1."""
    data = _encoded(_picture(60, 40).convert(mode))

    assert _difference(decode(data), _pillow(data)) <= tolerance


def test_exif_orientation_is_not_applied() -> None:
    """A rotated photograph keeps its stored rows and columns, as in ImageFolder."""
    exif = Image.Exif()
    exif[0x0112] = 6
    data = _encoded(_picture(60, 40), exif=exif.tobytes())

    assert decode(data).shape == (40, 60, 3)


def test_training_crop_equals_pillow() -> None:
    """A random-resized crop is Pillow's crop and antialiased resize, within 1."""
    image = _picture(211, 160)
    data = _encoded(image)
    whole = Image.fromarray(_pillow(data))
    crop = RandomResizedCrop((48, 64), flip=0.5)
    for sample in range(30):
        size = np.array([[211, 160]])
        plan = crop.plan(size, np.array([sample]), seed=0, epoch=0)
        x, y, w, h = plan.source[0].tolist()
        expected = np.asarray(
            whole.crop((x, y, x + w, y + h)).resize((64, 48), Image.Resampling.BILINEAR)
        )
        if plan.flip[0]:
            expected = expected[:, ::-1]

        assert _difference(_crop(data, plan, (48, 64)), expected) <= 1


@pytest.mark.parametrize("size", [(120, 90), (90, 120), (40, 40), (33, 70)])
@pytest.mark.parametrize("resize", [None, 48])
def test_evaluation_crop_equals_torchvision(size: tuple[int, int], resize: int | None) -> None:
    """Resize and centre crop, padded where needed, are torchvision's on a PIL image, within 1."""
    data = _encoded(_picture(*size))
    expected = Image.fromarray(_pillow(data))
    if resize is not None:
        expected = tv.resize(expected, [resize])
    expected = tv.center_crop(expected, [42, 42])
    plan = CenterCrop(42, resize).plan(np.array([size]), np.array([0]), seed=0, epoch=0)

    assert _difference(_crop(data, plan, (42, 42)), np.asarray(expected)) <= 1


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_truncated_image(keep: float) -> None:
    """An image that was cut short is an error, not grey pixels."""
    data = _encoded(_picture(100, 100))

    with pytest.raises(DecodeError):
        decode(data[: int(len(data) * keep)])


def test_image_smaller_than_announced() -> None:
    """An image that is smaller than the catalog says is an error that names both sizes."""
    data = _encoded(_picture(50, 40))
    plan = CenterCrop(32).plan(np.array([[100, 80]]), np.array([0]), seed=0, epoch=0)

    with pytest.raises(DecodeError, match="header says 50x40 pixels, the catalog 100x80"):
        _crop(data, plan, (32, 32))


def test_npy_of_any_length_is_an_image_or_an_error() -> None:
    """Pixels that were cut anywhere, within the magic bytes too, are a DecodeError."""
    buffer = io.BytesIO()
    np.save(buffer, np.full((2, 3, 3), 7, np.uint8))
    whole = buffer.getvalue()

    assert decode(whole).tolist() == [[[7, 7, 7]] * 3] * 2
    for length in range(len(whole)):
        with pytest.raises(DecodeError):
            decode(whole[:length])
