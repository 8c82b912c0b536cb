"""Masks and boxes move with the crops of their images."""

import io

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from fastdata.batch.targets import IGNORED, Mask, crop_boxes, crop_mask, decode_mask
from fastdata.errors import DecodeError
from fastdata.plan.crop import CenterCrop, Crop, CropPlan, RandomResizedCrop

WIDTH, HEIGHT = 61, 47


def _png(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "png", **options)
    return file.getvalue()


def _labels(seed: int = 0, most: int = 256) -> Mask:
    return np.random.default_rng(seed).integers(0, most, (HEIGHT, WIDTH), np.uint8)


def _plan(crop: Crop, count: int = 12) -> CropPlan:
    sizes = np.tile(np.array([[WIDTH, HEIGHT]], np.int64), (count, 1))
    return crop.plan(sizes, np.arange(count), seed=3, epoch=0)


@pytest.mark.parametrize("most", [2, 4, 16, 256])
@pytest.mark.parametrize("palette", [False, True])
def test_masks_are_labels(most: int, palette: bool) -> None:
    """A palette's indices and gray levels come as they are, for every number of bits."""
    labels = _labels(most=most)
    image = Image.fromarray(labels)
    if palette:
        image = image.convert("P")
        image.putdata(labels.ravel().tolist())
        colours = np.random.default_rng(1).integers(0, 256, 3 * most, np.uint8)
        image.putpalette(colours.tobytes())
        data = _png(image, bits={2: 1, 4: 2, 16: 4, 256: 8}[most], transparency=1)
    else:
        data = _png(image)

    assert np.array_equal(decode_mask(data), labels)


def test_one_bit_masks() -> None:
    """A mask of one bit is zeros and ones, not zeros and 255."""
    labels = _labels(most=2)

    assert np.array_equal(decode_mask(_png(Image.fromarray(labels.astype(bool)))), labels)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (_png(Image.new("RGB", (4, 4))), "one channel of 8 bits, found 4x4x3 of uint8"),
        (_png(Image.new("I;16", (4, 4))), "one channel of 8 bits, found 4x4 of uint16"),
        (b"no image", "image"),
        (_png(Image.new("P", (4, 4)))[:40], "truncated PNG"),
    ],
)
def test_masks_that_are_none(data: bytes, text: str) -> None:
    """Colours, 16 bits and damage are errors that say what a mask is."""
    with pytest.raises(DecodeError, match=text):
        decode_mask(data)


@pytest.mark.parametrize(
    "crop", [RandomResizedCrop(24, flip=0.5), RandomResizedCrop((90, 33), flip=0.5)]
)
def test_mask_is_pillows(crop: RandomResizedCrop) -> None:
    """Up and down, flipped or not, each pixel is Pillow's nearest.

    Where a centre falls between two pixels, Pillow's sum of floats may end on either side.
    """
    labels, plan = _labels(), _plan(crop)
    out = np.empty(crop.shape, np.uint8)
    for row in range(len(plan.flip)):
        crop_mask(labels, plan, row, out)

        x, y, w, h = plan.source[row].tolist()
        part = Image.fromarray(labels).crop((x, y, x + w, y + h))
        expected = np.asarray(part.resize(crop.shape[::-1], Image.Resampling.NEAREST))
        clear_y, clear_x = (_clear(*pair) for pair in zip(crop.shape, (h, w), strict=True))
        upright = out[:, ::-1] if plan.flip[row] else out
        assert np.array_equal(upright[clear_y][:, clear_x], expected[clear_y][:, clear_x])


def _clear(scaled: int, source: int) -> npt.NDArray[np.bool_]:
    """Which output pixels have a centre that is inside one pixel of the source, (scaled,) bool."""
    rest = (2 * np.arange(scaled) + 1) * source % (2 * scaled)
    return np.asarray(rest != 0)


def test_padding_is_ignored() -> None:
    """Where the crop is larger than the image, the mask says that nothing is there."""
    crop = CenterCrop((60, 64))
    plan = _plan(crop, 1)
    plan.flip[:] = False
    out = np.zeros((60, 64), np.uint8)
    crop_mask(np.zeros((HEIGHT, WIDTH), np.uint8), plan, 0, out)

    left, top = (-plan.cut[0]).tolist()
    inside = np.zeros_like(out, bool)
    inside[top : top + HEIGHT, left : left + WIDTH] = True
    assert (out[inside] == 0).all()
    assert (out[~inside] == IGNORED).all()


def test_mask_of_another_size() -> None:
    """A mask that does not cover its image's crop is an error with both sizes."""
    plan = _plan(CenterCrop(20), 1)

    with pytest.raises(DecodeError, match="mask has 5 x 9 pixels, its image at least 61 x 47"):
        crop_mask(np.zeros((9, 5), np.uint8), plan, 0, np.empty((20, 20), np.uint8))


@pytest.mark.parametrize(
    "crop", [RandomResizedCrop(24), CenterCrop(32, resize=40, flip=0.5), CenterCrop(60)]
)
def test_boxes_are_torchvisions(crop: Crop) -> None:
    """Boxes move as torchvision's resized crop, centre crop and flip move them."""
    tv = pytest.importorskip("torchvision")
    functional = pytest.importorskip("torchvision.transforms.v2").functional
    rng = np.random.default_rng(5)
    corners = rng.uniform(0, 1, (40, 2, 2)) * (WIDTH, HEIGHT)
    boxes = np.concatenate([corners.min(1), corners.max(1)], axis=1)
    plan, (height, width) = _plan(crop), crop.shape
    for row in range(len(plan.flip)):
        moved, visible = crop_boxes(boxes, plan, row, crop.shape)

        given = tv.tv_tensors.BoundingBoxes(
            torch.from_numpy(boxes), format="XYXY", canvas_size=(HEIGHT, WIDTH)
        )
        x, y, w, h = plan.source[row].tolist()
        size = plan.scaled[row].tolist()[::-1]
        expected = functional.resized_crop(given, y, x, h, w, size)
        if isinstance(crop, CenterCrop):
            expected = functional.clamp_bounding_boxes(expected)
            expected = functional.center_crop(expected, [height, width])
        if plan.flip[row]:
            expected = functional.horizontal_flip(expected)
        expected = functional.clamp_bounding_boxes(expected).numpy()
        seen = (expected[:, 2] > expected[:, 0]) & (expected[:, 3] > expected[:, 1])
        assert np.array_equal(visible, seen)
        assert moved[visible] == pytest.approx(
            expected[seen], abs=0.51 if "Center" in repr(crop) else 1e-4
        )


def test_no_boxes() -> None:
    """An image without objects has none in its crop either."""
    moved, visible = crop_boxes([], _plan(CenterCrop(8)), 0, (8, 8))

    assert (moved.shape, visible.shape) == ((0, 4), (0,))
