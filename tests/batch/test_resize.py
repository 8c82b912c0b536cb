"""Crops of images that are not JPEGs: the window alone is resized, with the whole's weights."""

import io

import numpy as np
import numpy.typing as npt
import pytest
import torch
from jpegs import scene
from peak import peak
from PIL import Image
from torch.nn.functional import interpolate

from fastdata import native
from fastdata.batch import resize
from fastdata.batch.decode import decode_crop
from fastdata.plan.crop import CenterCrop, Crop, CropPlan, RandomResizedCrop

Pixels = npt.NDArray[np.uint8]

_CORES = pytest.mark.parametrize("with_core", [True, False])


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _crop(data: bytes, plan: CropPlan, row: int, shape: tuple[int, int]) -> Pixels:
    out = np.full((*shape, 3), 77, np.uint8)
    decode_crop(data, plan, row, out)
    return out


def _plan(crop: Crop, size: tuple[int, int], rows: int = 1) -> CropPlan:
    sizes = np.tile(np.array(size, np.int64), (rows, 1))
    return crop.plan(sizes, np.arange(rows), seed=3, epoch=0)


def _pillows(image: Image.Image, plan: CropPlan, row: int, shape: tuple[int, int]) -> Pixels:
    """Pillow's resize of the part that is kept, whose weights reach out of it as ours do."""
    x, y, width, height = plan.source[row].tolist()
    (across, down), (left, top) = plan.scaled[row].tolist(), plan.cut[row].tolist()
    low = max(0, left), max(0, top)
    high = min(across, left + shape[1]), min(down, top + shape[0])
    fx, fy = width / across, height / down
    part = image.crop((x, y, x + width, y + height)).resize(
        (high[0] - low[0], high[1] - low[1]),
        Image.Resampling.BILINEAR,
        box=(low[0] * fx, low[1] * fy, high[0] * fx, high[1] * fy),
    )
    out = np.zeros((*shape, 3), np.uint8)
    at = low[0] - left, low[1] - top
    pixels = np.asarray(part)
    out[at[1] : at[1] + pixels.shape[0], at[0] : at[0] + pixels.shape[1]] = pixels
    return out[:, ::-1] if plan.flip[row] else out


@pytest.mark.parametrize("way", ["core", "torch", "window"])
@pytest.mark.parametrize("size", [(90, 70), (31, 200), (16, 16), (9, 400), (3, 2)])
@pytest.mark.parametrize(
    "crop", [CenterCrop(24, 32, flip=0.5), CenterCrop(24), CenterCrop((30, 11), 9, flip=0.5), None]
)
def test_pixels_are_pillows(
    size: tuple[int, int], crop: Crop | None, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is shrunk, enlarged, padded or cut off, each pixel is Pillow's within 1."""
    if way != "core":
        monkeypatch.setattr(native, "load", lambda: None)
    if way == "window":
        monkeypatch.setattr(resize, "_WHOLE", 0)
    crop = RandomResizedCrop((20, 28), flip=0.5) if crop is None else crop
    image = Image.fromarray(scene(*size))
    plan = _plan(crop, size, 5)

    for row in range(5):
        found = _crop(_png(image), plan, row, crop.shape)
        expected = _pillows(image, plan, row, crop.shape)
        assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("most", [0, 1 << 22])
def test_without_the_core_it_is_torchs(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window is what resizing the whole region, as torch does, and cutting it gives."""
    monkeypatch.setattr(native, "load", lambda: None)
    monkeypatch.setattr(resize, "_WHOLE", most)
    pixels = scene(333, 251)
    plan = _plan(CenterCrop(64, resize=100), (333, 251))
    width, height = plan.scaled[0].tolist()
    left, top = plan.cut[0].tolist()
    planes = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
    whole = interpolate(planes, (height, width), mode="bilinear", antialias=True)[0]
    expected = whole.permute(1, 2, 0).numpy()[top : top + 64, left : left + 64]

    found = _crop(_png(Image.fromarray(pixels)), plan, 0, (64, 64))

    assert np.abs(found.astype(int) - expected).max() <= (1 if most == 0 else 0)


@_CORES
@pytest.mark.parametrize("size", [(1, 65_000), (65_000, 1), (1, 1_000_000), (1_000_000, 2)])
@pytest.mark.parametrize(
    "crop",
    [
        CenterCrop(224, resize=256),
        RandomResizedCrop(224),
        RandomResizedCrop(224, scale=(1, 1), ratio=(1e-4, 1e4)),
    ],
)
def test_narrow_images_take_no_memory(
    size: tuple[int, int],
    crop: Crop,
    with_core: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A PNG of a few bytes must not become a hundred gigabytes for the sake of 224 pixels."""
    if not with_core:
        monkeypatch.setattr(native, "load", lambda: None)
    image = Image.new("RGB", size, (10, 100, 200))
    data, plan = _png(image), _plan(crop, size)

    with peak() as memory:
        out = _crop(data, plan, 0, (224, 224))

    assert memory.taken < 200 << 20
    assert set(map(tuple, out.reshape(-1, 3).tolist())) == {(10, 100, 200)}
