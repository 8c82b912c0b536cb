"""Normalisation equals torchvision's float pipeline."""

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from fastdata.normalize import IMAGENET, Normalize

_CPU = torch.device("cpu")


def _pixels() -> torch.Tensor:
    """All 256 values in each channel, channels_last as a loader has them."""
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(2, 16, 16, 3)
    return levels.contiguous().permute(0, 3, 1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_equals_torchvision(dtype: torch.dtype) -> None:
    """Every pixel value in every channel is torchvision's, within one rounding of the dtype."""
    pixels = _pixels()
    floats = tv.normalize(tv.to_dtype(pixels, torch.float32, scale=True), *map(list, IMAGENET))

    ours = Normalize(IMAGENET, dtype=dtype, device=_CPU)(pixels)

    assert ours.dtype == dtype
    torch.testing.assert_close(ours.float(), floats, rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_keeps_channels_last() -> None:
    """The result has the memory format that convolutions on a GPU want, without a transpose."""
    ours = Normalize(IMAGENET, dtype=torch.float32, device=_CPU)(_pixels())

    assert ours.is_contiguous(memory_format=torch.channels_last)
