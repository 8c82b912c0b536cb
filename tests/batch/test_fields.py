"""Masks and fields come with the batches of their images."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fastdata as fd
from fastdata.batch.targets import crop_boxes
from fastdata.dataset import manifest
from fastdata.errors import DecodeError, OptionError
from fastdata.loaders.readers.packed import open_source

_COUNT = 14
_UP = fd.RandomResizedCrop(128)  # no centre of its pixels falls between two of an image


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in which red is the label and green the column, masks of the label, and boxes."""
    root = tmp_path_factory.mktemp("segments")
    rng = np.random.default_rng(0)
    for number in range(_COUNT):
        width, height = 60 + number, 70 - number
        labels = np.repeat(rng.integers(0, 20, (height, 1), np.uint8), width, axis=1)
        columns = np.tile(np.arange(width, dtype=np.uint8) * 2, (height, 1))
        pixels = np.stack([labels * 12, columns, columns * 0 + 10 * number], axis=2)
        Image.fromarray(pixels).save(root / f"{number:02}.bmp")
        mask = Image.fromarray(labels, "P")
        mask.putpalette(rng.integers(0, 256, 768, np.uint8).tobytes())
        mask.save(root / f"{number:02}.png")
        if number != 3:
            boxes = {"boxes": [[5, 6, 30 + number, 40]]}
            (root / f"{number:02}.json").write_text(json.dumps(boxes))
    return root


@pytest.fixture(scope="module", params=["shards", "one.lmdb"])
def packed(folder: Path, request: pytest.FixtureRequest) -> Path:
    """The same, packed with their fields."""
    out = folder.parent / "packed" / str(request.param)
    out.parent.mkdir(exist_ok=True)
    fd.pack(folder, out, fields=("png", "json"), shard_size=40_000)
    return out


def _batches(path: Path, **options: Any) -> list[fd.Batch]:
    defaults: dict[str, Any] = {"crop": fd.RandomResizedCrop(24, flip=0.5), "threads": 2}
    with fd.Loader(path, 4, drop_last=False, **(defaults | options)) as loader:
        return [batch for _ in range(2) for batch in loader]


def test_masks_are_cut_as_images(packed: Path) -> None:
    """Each pixel of a mask is the label that the image shows at its place."""
    batches = _batches(packed, mask="png", crop=fd.CenterCrop(40))

    seen = 0
    for batch in batches:
        assert batch.masks is not None
        assert batch.masks.shape == (len(batch.ids), 40, 40)
        red = batch.images[:, 0] // 12  # no resize, so that labels do not mix
        assert (batch.masks == red).all()
        seen += len(batch.ids)
    assert seen >= 2 * _COUNT


def test_masks_equal_pillows(packed: Path, folder: Path) -> None:
    """With resize and flip, in both views, a mask is Pillow's nearest of the same crop."""
    for batch in _batches(packed, mask="png", views=2, crop=_UP):
        assert batch.masks is not None
        assert batch.crops is not None
        for row, mask in enumerate(batch.masks.numpy()):
            key = batch.keys[row % len(batch.ids)]
            x, y, w, h = batch.crops.source[row].tolist()
            with Image.open(folder / f"{key}.png") as image:
                part = image.crop((x, y, x + w, y + h)).resize((128, 128), Image.Resampling.NEAREST)
                expected = np.asarray(part)
            upright = mask[:, ::-1] if batch.crops.flip[row] else mask
            assert np.array_equal(upright, expected)


def test_fields_are_the_samples(packed: Path, folder: Path) -> None:
    """Bytes come as they were packed; None where a sample has none; views share them."""
    for batch in _batches(packed, fields=["json"], views=2):
        column = batch.fields["json"]
        for key, data in zip(batch.keys, column, strict=True):
            path = folder / f"{key}.json"
            assert data == (path.read_bytes() if path.exists() else None)
        assert batch.masks is None


def test_boxes_follow_the_crop(packed: Path) -> None:
    """Green tells the column of the image, so that a moved box can be found in the crop."""
    for batch in _batches(packed, fields=["json"], crop=fd.RandomResizedCrop(48, flip=0.5)):
        assert batch.crops is not None
        for row, data in enumerate(batch.fields["json"]):
            if data is None:
                continue
            given = json.loads(data)["boxes"]
            boxes, visible = crop_boxes(given, batch.crops, row, (48, 48))
            if not visible[0]:
                continue
            left, right = boxes[0, [0, 2]]
            green = batch.images[row, 1, 24].numpy().astype(float) / 2  # column of each pixel
            inside = (np.arange(48) + 0.5 > left) & (np.arange(48) + 0.5 < right)
            found = green[inside] + 0.5
            assert ((found > given[0][0] - 2) & (found < given[0][2] + 2)).all()


def test_plain_batches_have_neither(packed: Path) -> None:
    """Who asks for nothing gets nothing, and pays nothing."""
    batch = _batches(packed)[0]

    assert (batch.masks, batch.fields, batch.crops) == (None, {}, None)


def test_substitutes_bring_their_own(packed: Path, folder: Path, tmp_path: Path) -> None:
    """A replaced sample's mask, fields and crop are the substitute's."""
    if packed.suffix == ".lmdb":
        pytest.skip("damages a shard")
    broken = tmp_path / "broken"
    fd.pack(folder, broken, fields=("png", "json"), shard_size=40_000)
    source = open_source(broken)
    row = source.rows(np.array([5]))[0]
    shard = broken / manifest.load(broken).shards[row["shard"]].name
    data = bytearray(shard.read_bytes())
    data[row["offset"] + 1000] ^= 4
    shard.write_bytes(data)
    options = {"on_error": fd.Replace(quarantine=tmp_path / "q.jsonl")}
    crop = fd.CenterCrop(40)

    for batch in _batches(broken, mask="png", fields=["json"], crop=crop, **options):
        assert batch.masks is not None
        assert 5 not in batch.ids
        assert (batch.masks == batch.images[:, 0] // 12).all()
        for key, data_found in zip(batch.keys, batch.fields["json"], strict=True):
            path = folder / f"{key}.json"
            assert data_found == (path.read_bytes() if path.exists() else None)
    assert (tmp_path / "q.jsonl").exists()


def test_a_mask_that_is_none_is_an_error(folder: Path, tmp_path: Path) -> None:
    """A sample without its mask, or with colours for it, is named, with the field."""
    colours = io.BytesIO()
    Image.new("RGB", (4, 4)).save(colours, "png")
    for name, text in (("json", "field 'json'"), ("png", "one channel of 8 bits")):
        root = tmp_path / name
        root.mkdir()
        (root / "00.bmp").write_bytes((folder / "00.bmp").read_bytes())
        (root / "00.json").write_bytes(b"{}")
        (root / "00.png").write_bytes(colours.getvalue())
        fd.pack(root, tmp_path / f"{name}.d", fields=("png", "json"))

        with pytest.raises(DecodeError, match=rf"sample '00'.*{text}"):
            _batches(tmp_path / f"{name}.d", mask=name)


@pytest.mark.parametrize("options", [{"mask": "gif"}, {"fields": ["gif"]}])
def test_fields_that_there_are_not(packed: Path, options: dict[str, Any]) -> None:
    """A field that no sample has is an error that names those there are."""
    with pytest.raises(OptionError, match="has no field gif; it has json, png"):
        _batches(packed, **options)
