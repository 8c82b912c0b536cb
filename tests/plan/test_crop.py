"""Crop plans: torchvision's geometry and distribution, keyed by sample."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from fastdata.errors import OptionError
from fastdata.plan.crop import CenterCrop, Crop, CropPlan, RandomResizedCrop, _exp


def _plan(crop: Crop, sizes: list[tuple[int, int]], *, epoch: int = 0) -> CropPlan:
    return crop.plan(np.array(sizes), np.arange(len(sizes)), seed=0, epoch=epoch)


def test_random_crops_have_torchvisions_distribution() -> None:
    """Area, aspect and place of 4,000 crops are distributed like torchvision's (two samples KS)."""
    n, width, height = 4000, 500, 375
    plan = _plan(RandomResizedCrop(224), [(width, height)] * n)
    torch.manual_seed(0)
    image = torch.empty(3, height, width, dtype=torch.uint8)
    params = [v2.RandomResizedCrop(224).make_params([image]) for _ in range(n)]
    theirs = np.array([[p["left"], p["top"], p["width"], p["height"]] for p in params])

    for ours, their in zip(_shapes(plan.source), _shapes(theirs), strict=True):
        assert _ks(ours, their) < 1.95 * np.sqrt(2 / n)  # p = 0.001


def _shapes(boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    x, y, width, height = boxes.T
    return width * height, width / height, x + width / 2, y + height / 2


def _ks(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance of two samples."""
    grid = np.sort(np.concatenate([a, b]))
    return float(
        np.abs(
            np.searchsorted(np.sort(a), grid, "right") / len(a)
            - np.searchsorted(np.sort(b), grid, "right") / len(b)
        ).max()
    )


@pytest.mark.parametrize("size", [(1, 1), (1, 65500), (65500, 1), (3, 2), (5000, 10), (640, 480)])
def test_crops_lie_inside(size: tuple[int, int]) -> None:
    """Each crop of 500 has at least one pixel and lies inside the image, whatever its shape."""
    x, y, width, height = _plan(RandomResizedCrop(8), [size] * 500).source.T

    assert min(x.min(), y.min()) >= 0
    assert min(width.min(), height.min()) >= 1
    assert (x + width).max() <= size[0]
    assert (y + height).max() <= size[1]


def test_fallback_is_torchvisions() -> None:
    """Where no draw can fit, the central part is torchvision's to the pixel."""
    for width, height in [(1000, 7), (7, 1000), (901, 10)]:
        crop = RandomResizedCrop(8, scale=(1, 1), ratio=(0.9, 1.1))
        params = v2.RandomResizedCrop(8, scale=(1, 1), ratio=(0.9, 1.1)).make_params(
            [torch.empty(3, height, width, dtype=torch.uint8)]
        )

        box = _plan(crop, [(width, height)]).source[0].tolist()

        assert box == [params["left"], params["top"], params["width"], params["height"]]


@pytest.mark.parametrize("resize", [None, 64, 71])
@pytest.mark.parametrize("size", [64, (30, 50)])
def test_center_crop_is_torchvisions(resize: int | None, size: int | tuple[int, int]) -> None:
    """Resize and window equal torchvision's for many image sizes, padding included."""
    for width, height in [(500, 375), (375, 500), (64, 64), (63, 20), (20, 201), (333, 71), (1, 1)]:
        plan = _plan(CenterCrop(size, resize), [(width, height)])
        marked = torch.arange(width * height, dtype=torch.float64).reshape(1, height, width) + 1
        scaled_w, scaled_h = plan.scaled[0].tolist()
        if resize is None:
            assert (scaled_w, scaled_h) == (width, height)
        else:
            probe = torch.zeros(1, height, width, dtype=torch.uint8)
            assert tuple(tv.resize(probe, [resize]).shape[1:]) == (scaled_h, scaled_w)
            marked = torch.arange(scaled_w * scaled_h, dtype=torch.float64) + 1
            marked = marked.reshape(1, scaled_h, scaled_w)
        expected = tv.center_crop(marked, [size, size] if isinstance(size, int) else list(size))

        out = np.zeros(expected.shape[1:])
        cut_x, cut_y = plan.cut[0].tolist()
        for y in range(out.shape[0]):
            for x in range(out.shape[1]):
                if 0 <= cut_x + x < scaled_w and 0 <= cut_y + y < scaled_h:
                    out[y, x] = marked[0, cut_y + y, cut_x + x]
        assert np.array_equal(out, expected[0].numpy())


def test_keyed_by_sample_and_epoch() -> None:
    """A sample's crop and flip do not depend on its company; another epoch changes them."""
    crop = RandomResizedCrop(224, flip=0.5)
    together = _plan(crop, [(500, 375)] * 50)
    sizes, ids = np.array([(500, 375)]), np.array([17])
    alone = crop.plan(sizes, ids, seed=0, epoch=0)
    later = crop.plan(sizes, ids, seed=0, epoch=1)

    assert np.array_equal(together.source[17], alone.source[0])
    assert together.flip[17] == alone.flip[0]
    assert not np.array_equal(alone.source, later.source)


def test_flip_probability() -> None:
    """Flips come as often as asked, independently of the crop; never at 0, always at 1."""
    sizes = [(100, 100)] * 4000

    assert abs(_plan(RandomResizedCrop(8, flip=0.3), sizes).flip.mean() - 0.3) < 0.03
    assert not _plan(RandomResizedCrop(8), sizes).flip.any()
    assert _plan(CenterCrop(8, flip=1), sizes).flip.all()


def test_golden_vectors() -> None:
    """Crops are the same on every platform and version: these were computed once."""
    plan = RandomResizedCrop(224, flip=0.5).plan(
        np.array([(500, 375), (333, 500), (4000, 3000)]), np.arange(3), seed=1, epoch=2
    )

    assert plan.source.tolist() == [
        [224, 105, 234, 241],
        [31, 232, 195, 256],
        [1373, 163, 2429, 2625],
    ]
    assert plan.flip.tolist() == [True, False, False]


def test_exp() -> None:
    """The portable exponential agrees with numpy's to the last bits."""
    x = np.linspace(-9.2, 9.2, 2001)

    assert np.abs(_exp(x) / np.exp(x) - 1).max() < 1e-14
    assert _exp(np.zeros(1))[0] == 1


@pytest.mark.parametrize("size", [0, -1, 2**31, 2**40, (0, 5), (5, 65536)])
def test_impossible_sizes(size: int | tuple[int, int]) -> None:
    """Sizes of zero, below, or beyond any image are refused at once."""
    with pytest.raises(OptionError, match="1 to 65535"):
        RandomResizedCrop(size)
    with pytest.raises(OptionError, match="1 to 65535"):
        CenterCrop(size)


@pytest.mark.parametrize("name", ["scale", "ratio"])
@pytest.mark.parametrize("pair", [(0, 1), (0.5, 0.4), (-1, 1), (0.5, float("nan"))])
def test_impossible_ranges(name: str, pair: tuple[float, float]) -> None:
    """A range that is empty or not positive is refused and named."""
    with pytest.raises(OptionError, match=name):
        RandomResizedCrop(8, **{name: pair})  # type: ignore[arg-type]
