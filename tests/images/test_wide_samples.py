"""Samples of more than 8 bits, and those without a black and a white, become 8 bits."""

import io

import numpy as np
import pytest
from odd_images import saved, tiff
from PIL import Image

from fastdata.converters.images.coding import Coding
from fastdata.images.pixels import decode


def _gray(mode: str, values: np.ndarray, kind: str) -> bytes:
    image = Image.frombytes(mode, values.shape[::-1], values.tobytes())
    return saved(image, kind)


@pytest.mark.parametrize(("mode", "kind"), [("I;16", "PNG"), ("I;16", "TIFF"), ("I;16B", "TIFF")])
def test_gray_of_16_bits_keeps_its_upper_half(mode: str, kind: str) -> None:
    """Pillow makes all above 255 white; here 16 bits keep the picture."""
    values = np.arange(0, 65536, 97).reshape(26, 26)
    data = _gray(mode, values.astype(">u2" if mode == "I;16B" else "<u2"), kind)

    for image in (data, Coding().code_file(data, "").image):
        assert np.array_equal(decode(image), np.repeat((values >> 8)[:, :, None], 3, axis=2))
    assert "16 bits to 8" in Coding(format="png", resize="9x9").code_file(data, "").lossy_notes


def test_gray_of_12_bits_keeps_its_upper_8() -> None:
    """What a TIFF's samples have decides which of them are kept."""
    data = tiff(12, 1, 1)
    with Image.open(io.BytesIO(data)) as image:
        values = np.asarray(image)

    assert values.max() > 255
    assert np.array_equal(decode(data)[:, :, 1], values >> 4)


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-3, 8, 400, dtype=np.float32).reshape(20, 20),
        np.arange(-200_000, 200_000, 1000).astype(np.int32).reshape(20, 20),
        np.full((20, 20), 7.5, np.float32),
        np.full((20, 20), np.nan, np.float32),
    ],
)
def test_values_without_black_and_white_are_stretched(values: np.ndarray) -> None:
    """Floats and 32-bit integers: the least becomes black, the greatest white, and that is said."""
    data = _gray("F" if values.dtype == np.float32 else "I", values, "TIFF")
    low, high = np.nan_to_num(values).min(), np.nan_to_num(values).max()
    expected = np.interp(np.nan_to_num(values), [low, max(high, low + 1)], [0, 255])

    coded = Coding().code_file(data, "")

    assert np.abs(decode(coded.image)[:, :, 0] - expected).max() <= 0.5001
    assert np.array_equal(decode(coded.image), decode(data))
    assert "least to greatest value stretched to 8 bits" in coded.lossy_notes


def test_values_that_are_not_finite_are_black() -> None:
    """Infinities and NaN decide neither black nor white."""
    values = np.array([[np.inf, 1, 2], [-np.inf, 3, np.nan]], np.float32)

    pixels = decode(_gray("F", values, "TIFF"))

    assert pixels[:, :, 0].tolist() == [[0, 0, 128], [0, 255, 0]]
