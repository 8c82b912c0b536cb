"""The native core's resize, in whole crops: Pillow's and torchvision's pixels."""

from pathlib import Path
from types import ModuleType

import filling
import jpegs
import numpy as np
import pytest
import torch
from filling import Box, Crops, Decoder
from jpegs import Pixels
from PIL import Image
from torchvision.transforms.v2 import functional as tv

from fastdata.plan.crop import CenterCrop, RandomResizedCrop


@pytest.fixture
def decoder(native_core: ModuleType, tmp_path: Path) -> Decoder:
    """One thread for all images of a test."""
    return Decoder(native_core, tmp_path)


def _random(rng: np.random.Generator, width: int, height: int) -> tuple[bytes, Pixels]:
    """A JPEG of noise, black and white, or blocks at nearly full quality, and its pixels."""
    kind = rng.integers(3)
    if kind == 0:
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    elif kind == 1:
        pixels = rng.choice(np.array([0, 255], np.uint8), (height, width, 3))
    else:
        small = rng.choice(np.array([0, 255], np.uint8), (height // 7 + 1, width // 5 + 1, 3))
        pixels = small.repeat(7, 0).repeat(5, 1)[:height, :width].copy()
    data = jpegs.pillow(pixels, quality=100, subsampling="4:4:4")
    return data, jpegs.decoded(data)


def _sides(rng: np.random.Generator, most: int) -> tuple[int, int]:
    """Two sides from 1 to `most`, small ones as likely as large ones."""
    x, y = np.exp(rng.uniform(0, np.log(most + 0.99), 2)).astype(int)
    return int(x), int(y)


def _distance(a: Pixels, b: Pixels) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b).max(initial=0))


def _resized(decoder: Decoder, data: bytes, box: Box, size: tuple[int, int]) -> Pixels:
    out, failure = decoder.crop(data, Crops([box], [size]), size[::-1])
    assert failure is None
    return out


@pytest.mark.parametrize("seed", range(5))
def test_training_crops_are_pillows(decoder: Decoder, seed: int) -> None:
    """Random regions at random sizes are within 1 of Pillow's crop and resize."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        width, height = _sides(rng, 600)
        data, pixels = _random(rng, width, height)
        for _ in range(5):
            w, h = int(rng.integers(1, width + 1)), int(rng.integers(1, height + 1))
            x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
            size = _sides(rng, 300)
            found = _resized(decoder, data, (x, y, w, h), size)
            part = Image.fromarray(pixels).crop((x, y, x + w, y + h))
            expected = np.asarray(part.resize(size, Image.Resampling.BILINEAR))
            assert _distance(found, expected) <= 1, ((width, height), (x, y, w, h), size)


@pytest.mark.parametrize("shape", [(224, 224), (96, 160)])
def test_planned_batches_are_pillows(
    native_core: ModuleType, tmp_path: Path, shape: tuple[int, int]
) -> None:
    """A batch as the loader plans it for training is within 1 of Pillow, mirrored where it says."""
    data, pixels = _random(np.random.default_rng(2), 500, 375)
    (tmp_path / "x").write_bytes(data)
    sizes = np.tile([[500, 375]], (64, 1))
    plan = RandomResizedCrop(shape, flip=0.5).plan(sizes, np.arange(64), seed=1, epoch=0)
    out = np.empty((64, *shape, 3), np.uint8)
    threads = filling.pool(native_core, 2)
    job = threads.fill(
        filling.whole_files(native_core, [tmp_path / "x"] * 64),
        filling.NO_CHECKSUMS,
        np.arange(64),
        plan,
        out,
        keep_going=False,
    )
    assert filling.end(job) is None
    for found, (x, y, w, h), flip in zip(out, plan.source.tolist(), plan.flip, strict=True):
        part = Image.fromarray(pixels).crop((x, y, x + w, y + h))
        expected = np.asarray(part.resize(shape[::-1], Image.Resampling.BILINEAR))
        assert _distance(found, expected[:, ::-1] if flip else expected) <= 1


@pytest.mark.parametrize(
    ("source", "size"),
    [
        *[((1, 1), (224, 224)), ((1, 500), (224, 7)), ((500, 1), (1, 300)), ((2, 3), (65, 1000))],
        *[((65500, 2), (3, 2)), ((3, 65500), (5, 1)), ((9000, 11), (16, 16))],
        *[((2, 2), (2, 65535)), ((2, 2), (65535, 2)), ((3000, 2000), (40, 30))],
    ],
)
def test_extreme_sizes_are_pillows(
    decoder: Decoder, source: tuple[int, int], size: tuple[int, int]
) -> None:
    """One pixel sources, one pixel outputs and a JPEG's longest sides are within 1 of Pillow."""
    data, pixels = _random(np.random.default_rng(0), *source)
    found = _resized(decoder, data, (0, 0, *source), size)
    expected = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))
    assert _distance(found, expected) <= 1


@pytest.mark.parametrize("seed", range(4))
def test_evaluation_crops_are_torchvisions(decoder: Decoder, seed: int) -> None:
    """Resize of the whole image and its centre are within 1 of torchvision over Pillow.

    Where nothing is resized they are equal; where the image is smaller both pad with zeros.
    """
    rng = np.random.default_rng(seed)
    for _ in range(40):
        width, height = _sides(rng, 500)
        if max(width, height) > 40 * min(width, height):
            continue  # torchvision would make the whole of a very long image
        shape = _sides(rng, 260)
        short = None if rng.integers(4) == 0 else int(rng.integers(1, 300))
        data, pixels = _random(rng, width, height)
        plan = CenterCrop(shape, resize=short).plan(
            np.array([[width, height]]), np.zeros(1, np.int64), seed=0, epoch=0
        )
        (scaled,), (cut,) = plan.scaled.tolist(), plan.cut.tolist()
        crops = Crops([(0, 0, width, height)], [tuple(scaled)], tuple(cut))
        found, failure = decoder.crop(data, crops, shape)

        image = Image.fromarray(pixels)
        if short is not None:
            image = tv.resize(image, [short], tv.InterpolationMode.BILINEAR)
        expected = np.asarray(tv.center_crop(image, list(shape)))
        assert failure is None
        assert _distance(found, expected) <= (0 if short is None else 1), (width, height, shape)


@pytest.mark.parametrize("seed", range(4))
def test_any_cut_is_a_part_of_the_whole(decoder: Decoder, seed: int) -> None:
    """An output window anywhere, also outside, has the pixels of the whole resize, and zeros."""
    rng = np.random.default_rng(seed)
    for _ in range(40):
        (w, h), (sw, sh), (ow, oh) = _sides(rng, 200), _sides(rng, 200), _sides(rng, 90)
        data, _ = _random(rng, w, h)
        cx, cy = int(rng.integers(-ow - 2, sw + 3)), int(rng.integers(-oh - 2, sh + 3))
        whole = _resized(decoder, data, (0, 0, w, h), (sw, sh))
        crops = Crops([(0, 0, w, h)], [(sw, sh)], (cx, cy))
        found, failure = decoder.crop(data, crops, (oh, ow))

        padded = np.pad(whole, ((oh + 2, oh + 2), (ow + 2, ow + 2), (0, 0)))
        assert failure is None
        assert np.array_equal(found, padded[cy + oh + 2 :, cx + ow + 2 :][:oh, :ow])


@pytest.mark.parametrize("value", [0, 1, 127, 128, 254, 255])
def test_constant_images_stay_constant(decoder: Decoder, value: int) -> None:
    """An image of one colour has that colour at every size."""
    rng = np.random.default_rng(value)
    data = jpegs.pillow(np.full((301, 403, 3), value, np.uint8), quality=100)
    colour = jpegs.decoded(data)[0, 0]
    for _ in range(30):
        (w, h), size = _sides(rng, 300), _sides(rng, 300)
        assert (_resized(decoder, data, (3, 1, w, h), size) == colour).all()


@pytest.mark.parametrize("seed", range(4))
def test_close_to_torch(decoder: Decoder, seed: int) -> None:
    """Within 2 of torch's antialiased resize of uint8 tensors, which rounds twice."""
    rng = np.random.default_rng(seed)
    for _ in range(30):
        (w, h), size = _sides(rng, 500), _sides(rng, 300)
        data, pixels = _random(rng, w, h)
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        expected = tv.resize(tensor, list(size[::-1]), antialias=True).permute(1, 2, 0).numpy()

        assert _distance(_resized(decoder, data, (0, 0, w, h), size), expected) <= 2


@pytest.mark.parametrize(
    ("region", "scaled", "cut"),
    [
        *[((0, 0, 0, 9), (5, 5), (0, 0)), ((0, 0, 9, 65_536), (5, 5), (0, 0))],
        *[((0, 0, 9, 9), (0, 5), (0, 0)), ((0, 0, 9, 9), (5, 2**33), (0, 0))],
        *[((0, 0, 9, 9), (5, 5), (-(2**33), 0)), ((0, 0, 9, 9), (5, 5), (0, 2**62))],
    ],
)
def test_plans_out_of_range_are_failures(
    decoder: Decoder, region: Box, scaled: tuple[int, int], cut: tuple[int, int]
) -> None:
    """A plan that the arithmetic has no room for is a failure, and its output stays."""
    data = jpegs.pillow(jpegs.scene(9, 9))
    out, failure = decoder.crop(data, Crops([region], [scaled], cut), (5, 5))

    assert failure is not None
    assert failure.kind == filling.OTHER
    assert (out == filling.SENTINEL).all()
