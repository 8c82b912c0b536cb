"""DALILoader on a CUDA device: nvJPEG or the CPU decodes, the rest is done there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from jpegs import opencv, scene

import fastdata as fd
from fastdata.loaders.dali import imports

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(imports.installed() is None, reason="needs fastdata[dali]"),
]

_CROP = fd.RandomResizedCrop(32, flip=0.5)


@pytest.fixture(scope="module")
def textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 packed JPEGs of waves with noise."""
    root = tmp_path_factory.mktemp("textures")
    for number in range(24):
        (root / f"{number:02}.jpg").write_bytes(opencv(scene(160 + number, 120 + number)))
    fd.pack(root, root.parent / "packed")
    return root.parent / "packed"


@pytest.mark.parametrize("decoder", ["cpu", "mixed"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_batches_are_those_of_the_loader(
    textures: Path, decoder: Any, cut: bool, dtype: torch.dtype
) -> None:
    """Samples and order are the loader's; pixels of nvJPEG are within a few steps of 1/255."""
    options: dict[str, Any] = {
        "crop": _CROP,
        "device": "cuda",
        "dtype": dtype,
        "threads": 2,
    }
    ours = fd.Loader(textures, 5, **options)
    theirs = fd.DALILoader(textures, 5, decoder=decoder, cut=cut, **options)
    steps = 1.1 if decoder == "cpu" else 8  # nvJPEG's inverse DCT is not libjpeg-turbo's
    with ours, theirs:
        for _ in range(2):
            for mine, its in zip(ours, theirs, strict=True):
                assert its.images.device == mine.images.device
                assert its.images.dtype == dtype
                assert its.images.is_contiguous(memory_format=torch.channels_last)
                assert its.ids.tolist() == mine.ids.tolist()
                assert torch.equal(its.labels, mine.labels)
                assert torch.equal(its.valid, mine.valid)
                inside = (its.images.float() - mine.images.float())[:, :, 1:-1, 1:-1].abs()
                assert inside.max() <= steps / 255 / 0.224 + 0.02


def test_batches_that_are_kept_stay(textures: Path) -> None:
    """Device memory of a batch is not used again while a tensor of it is alive."""
    with fd.DALILoader(textures, 4, crop=_CROP, device="cuda", threads=2) as loader:
        kept = [batch.images for batch in loader]
        copies = [images.clone() for images in kept]
        for batch in loader:  # another epoch overwrites what is free
            torch.cuda._sleep(1_000_000)
            batch.images.mul_(2)
        torch.cuda.synchronize()

    assert all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))


def test_uint8_on_the_device(textures: Path) -> None:
    """Without normalisation batches stay uint8."""
    options: dict[str, Any] = {
        "crop": fd.CenterCrop(48, resize=64),
        "shuffle": False,
        "device": "cuda",
    }
    ours = fd.Loader(textures, 6, normalize=None, **options)
    theirs = fd.DALILoader(textures, 6, normalize=None, decoder="cpu", **options)
    with ours, theirs:
        for mine, its in zip(ours, theirs, strict=True):
            assert its.images.dtype == torch.uint8
            assert (its.images.int() - mine.images.int()).abs().max() <= 1
