"""DALILoader against Loader, on the CPU with the real DALI."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from jpegs import MAKERS, scene
from PIL import Image

import fastdata as fd
from fastdata.batch.decoder import Work
from fastdata.dataset.catalog.reader import Catalog
from fastdata.errors import DecodeError, MissingExtraError, OptionError, SampleError
from fastdata.loaders.dali import imports
from fastdata.loaders.dali.feed import Feeder
from fastdata.loaders.readers.packed import open_source

_CROP = fd.RandomResizedCrop(24, flip=0.5)
_EDGE = (
    64  # of 255: DALI repeats an edge beneath up to 1/8 of the filter, in corners along both axes
)


@pytest.fixture(scope="module", autouse=True)
def _dali() -> None:
    """Without DALI these tests skip; in CI it is installed, and they fail."""
    if imports.installed() is None:
        reason = "needs pip install 'fastdata[dali]'"
        if os.environ.get("FASTDATA_REQUIRE_CORE"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Waves with noise in JPEGs of every kind, and as PNG, GIF, BMP, TIFF, WebP and NPY."""
    root = tmp_path_factory.mktemp("textures")
    for number, (name, make) in enumerate(MAKERS.items()):
        kind = name.split()[0].replace(":", "")
        path = root / kind / f"{name.replace(' ', '_').replace(':', '')}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(make(150 + 7 * number, 190 - 5 * number))
    others = root / "others"
    others.mkdir()
    pixels = scene(120, 90)
    picture = Image.fromarray(pixels)
    for ending in ("png", "gif", "bmp", "tiff", "webp"):
        picture.save(others / f"plain.{ending}")
    picture.convert("P").save(others / "palette.png")
    Image.fromarray(np.dstack([pixels, pixels[:, :, :1]])).save(others / "alpha.png")
    assert cv2.imwrite(str(others / "deep.png"), pixels[:, :, 0].astype(np.uint16) * 256)
    np.save(others / "pixels.npy", pixels)
    return root


@pytest.fixture(scope="module")
def packed(textures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as shards, JPEGs in restart runs."""
    path = tmp_path_factory.mktemp("packed") / "textures"
    fd.pack(textures, path, shard_size=100_000)
    return path


def _both(
    path: Path | fd.Mix, batch_size: int = 5, **options: Any
) -> tuple[fd.Loader, fd.DALILoader]:
    """The two loaders with the same arguments."""
    arguments = {"crop": _CROP, "threads": 2, **options}
    ours = fd.Loader(path, batch_size, **arguments)
    return ours, fd.DALILoader(path, batch_size, **arguments)


def _dali_loader(path: Path, batch_size: int = 5, **options: Any) -> fd.DALILoader:
    arguments = {"crop": _CROP, "threads": 2, **options}
    return fd.DALILoader(path, batch_size, **arguments)


def _ids(batches: Iterator[fd.Batch] | fd.Loader | fd.DALILoader) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


def _differences(ours: fd.Batch, theirs: fd.Batch) -> torch.Tensor:
    """(N, 3, h, w) how far pixels are apart; all else is equal."""
    assert theirs.ids.tolist() == ours.ids.tolist()
    assert theirs.keys == ours.keys
    assert torch.equal(theirs.labels, ours.labels)
    assert torch.equal(theirs.valid, ours.valid)
    assert theirs.images.shape == ours.images.shape
    assert theirs.images.dtype == ours.images.dtype
    assert theirs.images.is_contiguous(memory_format=torch.channels_last)
    return (theirs.images.float() - ours.images.float()).abs()


@pytest.mark.parametrize("name", ["textures", "packed"])
@pytest.mark.parametrize("cut", [False, True])
def test_random_crops_are_those_of_the_loader(
    name: str, cut: bool, request: pytest.FixtureRequest
) -> None:
    """Samples, labels and order are the loader's; pixels are within 1, but for the outermost ones.

    CMYK is converted with other roundings: within 3.
    """
    options: dict[str, Any] = {"drop_last": False}
    path = request.getfixturevalue(name)
    ours = fd.Loader(path, 5, crop=_CROP, threads=2, **options)
    with ours, _dali_loader(path, cut=cut, **options) as theirs:
        assert len(theirs) == len(ours)
        for mine, its in zip(ours, theirs, strict=True):
            apart = _differences(mine, its)
            inside = apart[:, :, 1:-1, 1:-1].amax((1, 2, 3))
            limit = torch.tensor([3.0 if "/cmyk" in k or "/ycck" in k else 1.0 for k in mine.keys])

            assert (inside <= limit).all(), [*zip(mine.keys, inside.tolist(), strict=True)]
            assert apart.max() <= _EDGE


@pytest.mark.parametrize(
    "crop", [fd.CenterCrop(32, resize=64), fd.CenterCrop(24), fd.CenterCrop(256)]
)
def test_central_crops_are_those_of_the_loader(packed: Path, crop: fd.CenterCrop) -> None:
    """A window inside the scaled image is within 1 everywhere; what lies outside of it is black."""
    ours, theirs = _both(packed, crop=crop, shuffle=False)
    with ours, theirs:
        for mine, its in zip(ours, theirs, strict=True):
            apart = _differences(mine, its).amax((1, 2, 3))
            limit = torch.tensor([3.0 if "/cmyk" in k or "/ycck" in k else 1.0 for k in mine.keys])

            assert (apart <= limit).all(), [*zip(mine.keys, apart.tolist(), strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("crop", [fd.CenterCrop(32, resize=64), fd.CenterCrop(256)])
def test_normalised_on_the_cpu(packed: Path, dtype: torch.dtype, crop: fd.CenterCrop) -> None:
    """DALI normalises as the loader does, padding included: within a step of a pixel's value."""
    where = [number for number, key in enumerate(_keys(packed)) if "/cmyk" not in key]
    ours, theirs = _both(packed, crop=crop, device="cpu", dtype=dtype, sampling=fd.Sampling(where))
    with ours, theirs:
        for mine, its in zip(ours, theirs, strict=True):
            rounding = 0.0 if dtype == torch.float32 else 0.02

            assert _differences(mine, its).max() <= 1.01 / 255 / 0.224 + rounding


def _keys(path: Path) -> list[str]:
    source = open_source(path)
    return source.keys(np.arange(len(source)))


@pytest.mark.parametrize(
    "options",
    [
        {"views": 2},
        {"sampling": fd.Sampling(repeats=2), "shuffle": "window"},
        {"sampling": fd.Sampling([1, 3, 4, 7, 8, 9, 11], draws=16)},
        {"sampling": fd.Sampling(weights={"ant": 3.0, "bee": 0.0, "cat": 1.0})},
        {"seed": 7, "drop_last": False, "ranks": fd.Ranks(1, 2)},
    ],
)
def test_the_loaders_arguments(shards: Path, options: dict[str, Any]) -> None:
    """What an epoch draws, views, and the share of a rank with its padding are the loader's."""
    ours, theirs = _both(shards, **options)
    with ours, theirs:
        for _ in range(2):
            for mine, its in zip(ours, theirs, strict=True):
                assert _differences(mine, its).max() <= 1
        assert theirs.epoch == 2


def test_a_mix(shards: Path, packed: Path) -> None:
    """Several data sets as one go through DALI, too."""
    mix = fd.Mix({shards: 0.5, packed: 0.5})
    ours, theirs = _both(mix)
    with ours, theirs:
        assert _ids(theirs) == _ids(ours)


def test_states_go_from_either_loader_to_the_other(shards: Path) -> None:
    """A state of one, also in the middle of an epoch, lets the other go on as the first does."""
    ours, theirs = _both(shards, 4)
    with ours, theirs:
        for loader in (ours, theirs):
            passing = iter(loader)
            next(passing)
            next(passing)
        assert theirs.state_dict() == ours.state_dict()
        state = theirs.state_dict()
        rest = _ids(passing)
        ours.load_state_dict(state)
        assert _ids(ours) == rest
        theirs.load_state_dict(state)
        assert _ids(theirs) == rest
        assert theirs.state_dict() == ours.state_dict()


def test_a_broken_off_pass_begins_anew(shards: Path) -> None:
    """After a break the same epoch comes again; set_epoch brings any; what is kept stays."""
    with _dali_loader(shards, prefetch=3) as loader:
        first = list(loader)
        copies = [batch.images.clone() for batch in first]
        for _ in loader:
            break
        assert loader.epoch == 1
        second = _ids(loader)
        assert second != [batch.ids.tolist() for batch in first]
        loader.set_epoch(0)
        for batch, kept, copy in zip(loader, first, copies, strict=True):
            assert torch.equal(batch.images, copy)
            assert torch.equal(kept.images, copy)
        assert _ids(loader) == second


@pytest.mark.parametrize(("threads", "prefetch"), [(1, 0), (3, 4)])
def test_threads_and_prefetch_change_nothing(packed: Path, threads: int, prefetch: int) -> None:
    """Pixels and order depend on the data set, the seed and the epoch alone."""
    with (
        _dali_loader(packed) as loader,
        _dali_loader(packed, threads=threads, prefetch=prefetch) as other,
    ):
        for batch, same in zip(loader, other, strict=True):
            assert _differences(batch, same).max() == 0


def test_augment_is_called(shards: Path) -> None:
    """The hook of the loader works here as well."""
    changed = _dali_loader(shards, augment=lambda images, labels: (255 - images, labels + 7))
    with changed as loader, _dali_loader(shards) as plain:
        for batch, before in zip(loader, plain, strict=True):
            assert torch.equal(batch.images, 255 - before.images)
            assert torch.equal(batch.labels, before.labels + 7)


def test_runs_that_a_crop_needs(packed: Path, native_core: ModuleType) -> None:
    """Cut images hold the same pixels in a fraction of the bytes, also where little is needed."""
    source = open_source(packed)
    ids = np.array([i for i, key in enumerate(_keys(packed)) if key.startswith("444/")])
    crop = fd.RandomResizedCrop(24, scale=(0.05, 0.1))
    sizes = []
    for cut in (False, True):
        feeder = Feeder(source, crop, seed=0, threads=1, cut=cut)
        reading = feeder.submit(Work(0, ids, ids))
        assert reading.wait(240)
        sizes.append(sum(map(len, reading.result().encoded)))
        feeder.close()
    assert sizes[1] < sizes[0] / 2

    with (
        _dali_loader(packed, crop=crop, sampling=fd.Sampling(ids)) as whole,
        _dali_loader(packed, crop=crop, sampling=fd.Sampling(ids), cut=True) as parts,
    ):
        for batch, same in zip(whole, parts, strict=True):
            assert _differences(batch, same).max() == 0


def test_a_checksum_that_does_not_match(shards: Path, tmp_path: Path) -> None:
    """The batches before a damaged sample come; it is an error with its key, and no hang."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in shards.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    number = 11
    row = Catalog.from_file(copy / "catalog.fdc").rows([number])[0]
    shard = sorted(copy.glob("*.tar"))[row["shard"]]
    data = bytearray(shard.read_bytes())
    data[row["offset"] + row["length"] // 2] ^= 1
    shard.write_bytes(data)
    with _dali_loader(copy, 4, shuffle=False) as loader:
        for _ in range(2):
            passing = iter(loader)
            assert _ids(iter([next(passing), next(passing)])) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            with pytest.raises(SampleError, match=loader.source.keys(np.array([number]))[0]):
                next(passing)


def test_an_image_that_is_cut_short(tmp_path: Path) -> None:
    """What DALI cannot decode is an error that names the file, and DALI is built anew."""
    for number in range(4):
        data = MAKERS["4:2:0 baseline"](80, 60)
        (tmp_path / f"{number}.jpg").write_bytes(data[:1500] if number == 2 else data)
    with _dali_loader(tmp_path, 2, shuffle=False, crop=fd.CenterCrop(16, resize=16)) as loader:
        for _ in range(2):
            passing = iter(loader)
            next(passing)
            with pytest.raises(DecodeError, match="sample '2'"):
                next(passing)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder": "nvjpeg"}, "decoder must be"),
        ({"decoder": "mixed"}, "needs device='cuda'"),
        ({"views": 0}, "views must be"),
    ],
)
def test_arguments_out_of_range(shards: Path, options: dict[str, Any], message: str) -> None:
    """Each is one sentence."""
    with pytest.raises(OptionError, match=message):
        _dali_loader(shards, **options)


def test_dali_that_is_missing_too_old_or_broken(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a DALI that works gets a sentence with the name of the extra."""

    def broken(name: str) -> ModuleType:
        raise OSError(f"libcudart.so.12 is missing, {name} needs it")

    with monkeypatch.context() as patch:
        patch.setattr(importlib, "import_module", broken)
        with pytest.raises(MissingExtraError, match="does not load here: libcudart"):
            imports.dali()
    monkeypatch.setattr(imports, "version", lambda _package: "1.2.0")
    with pytest.raises(MissingExtraError, match=r"found nvidia-dali-cuda130 1.2.0: pip install"):
        _dali_loader(shards)
    monkeypatch.setattr(imports, "PACKAGES", ())
    with pytest.raises(MissingExtraError, match=r"needs NVIDIA DALI: pip install 'fastdata\[dali"):
        _dali_loader(shards)
