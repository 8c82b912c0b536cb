"""Single images, in the calling thread."""

import io
from concurrent.futures import ThreadPoolExecutor

import jpegs
import numpy as np
import pytest
from jpegs import Pixels, opencv, pillow, scene
from PIL import Image

from fastdata.batch.decode import cut_runs, decode_crop
from fastdata.converters.images.coding import transcode
from fastdata.errors import DecodeError
from fastdata.plan.crop import CenterCrop, CropPlan, RandomResizedCrop


def _plan(width: int, height: int, count: int = 6) -> CropPlan:
    sizes = np.tile(np.array([[width, height]], np.int64), (count, 1))
    return RandomResizedCrop(24, flip=0.5).plan(sizes, np.arange(count), seed=1, epoch=0)


def _expected(image: Image.Image, plan: CropPlan, row: int) -> Pixels:
    """Pillow's crop, antialiased resize and flip."""
    x, y, w, h = plan.source[row].tolist()
    scaled = image.crop((x, y, x + w, y + h)).resize((24, 24), Image.Resampling.BILINEAR)
    pixels = np.asarray(scaled)
    return pixels[:, ::-1] if plan.flip[row] else pixels


@pytest.mark.parametrize("kind", ["4:2:0", "4:4:4 progressive", "gray", "png"])
def test_one_image_is_pillows(kind: str) -> None:
    """A crop of any format is Pillow's within 1, as the loader gives it."""
    pixels = scene(90, 70)
    made = {
        "4:2:0": pillow(pixels, quality=90, subsampling=2),
        "4:4:4 progressive": pillow(pixels, quality=90, subsampling=0, progressive=True),
        "gray": opencv(pixels[:, :, 0]),
    }
    data = made.get(kind)
    if data is None:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        data = file.getvalue()
    plan = _plan(90, 70)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    out = np.empty((24, 24, 3), np.uint8)

    for row in range(len(plan.flip)):
        decode_crop(data, plan, row, out)

        expected = _expected(image, plan, row)
        assert np.abs(out.astype(int) - expected).max() <= 1, row


def test_threads_do_not_meet() -> None:
    """Many threads at once decode what one does."""
    made = [pillow(scene(60 + n, 50), quality=80) for n in range(8)]
    plans = [_plan(60 + n, 50, 1) for n in range(8)]

    def one(n: int) -> Pixels:
        out = np.empty((24, 24, 3), np.uint8)
        decode_crop(made[n], plans[n], 0, out)
        return out

    alone = [one(n) for n in range(8)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(one, [n % 8 for n in range(200)]))

    assert all(np.array_equal(found[n], alone[n % 8]) for n in range(200))


def test_one_image_that_is_bad() -> None:
    """Damage, another size and no image at all are errors, and the next image is right."""
    good = pillow(scene(64, 64), quality=80)
    plan = CenterCrop(32).plan(np.array([[64, 64]]), np.arange(1), seed=0, epoch=0)
    out = np.empty((32, 32, 3), np.uint8)
    decode_crop(good, plan, 0, out)
    expected = out.copy()

    for bad in (good[: len(good) // 2], pillow(scene(20, 20)), b"", b"no image"):
        with pytest.raises(DecodeError):
            decode_crop(bad, plan, 0, out)
        decode_crop(good, plan, 0, out)
        assert np.array_equal(out, expected)


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_cut_runs_hold_the_region(subsampling: int) -> None:
    """Any decoder finds the region's pixels in the smaller file, to the bit, where it says."""
    data, *_ = transcode(pillow(scene(333, 251), quality=90, subsampling=subsampling), 32)
    whole = jpegs.decoded(data)
    rng = np.random.default_rng(subsampling)

    for _ in range(30):
        w, h = int(rng.integers(1, 200)), int(rng.integers(1, 150))
        x, y = int(rng.integers(0, 333 - w + 1)), int(rng.integers(0, 251 - h + 1))
        small, left, top = cut_runs(data, x, y, w, h)

        region = jpegs.decoded(small)[y - top : y - top + h, x - left : x - left + w]
        assert np.array_equal(region, whole[y : y + h, x : x + w])
        assert len(small) < len(data)


@pytest.mark.usefixtures("native_core")
def test_nothing_to_cut() -> None:
    """A file without runs, or a region that needs them all, comes back as it is."""
    plain = pillow(scene(100, 80), quality=90)
    runs, *_ = transcode(plain, 32)

    assert cut_runs(plain, 10, 10, 20, 20) == (plain, 0, 0)
    assert cut_runs(runs, 0, 0, 100, 80) == (runs, 0, 0)


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("box", [(0, 0, 101, 80), (-1, 0, 5, 5), (3, 3, 0, 4)])
def test_regions_outside_are_refused(box: tuple[int, int, int, int]) -> None:
    """A region that is empty or reaches out of the image is an error."""
    with pytest.raises(DecodeError, match="not within the image"):
        cut_runs(pillow(scene(100, 80)), *box)
