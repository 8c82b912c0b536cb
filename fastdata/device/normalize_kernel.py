"""The CUDA kernel of normalisation, in Triton: one reading and one writing of each pixel.

In channels_last both tensors are one row of numbers whose channels take turns, so the kernel is
elementwise. Importing this needs Triton, which comes with torch on Linux.
"""

import torch
import triton
import triton.language as tl

_BLOCK = 2048  # 4 warps of 32 lanes with 16 bytes each, the widest load there is


# Triton reads the annotations of its kernels.
# ruff: noqa: ANN001, ANN202, N803


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    pixels, out, count, scale0, scale1, scale2, shift0, shift1, shift2, BLOCK: tl.constexpr
):
    """``out[i] = pixels[i] * scale[i % 3] + shift[i % 3]`` in float32, for all i < count."""
    first = tl.program_id(0).to(tl.int64) * BLOCK  # a batch may have more than 2**31 numbers
    lanes = tl.arange(0, BLOCK)
    channel = ((first % 3).to(tl.int32) + lanes) % 3
    scale = tl.where(channel == 0, scale0, tl.where(channel == 1, scale1, scale2))
    shift = tl.where(channel == 0, shift0, tl.where(channel == 1, shift1, shift2))
    places = first + lanes
    inside = places < count
    values = tl.load(pixels + places, mask=inside).to(tl.float32) * scale + shift
    tl.store(out + places, values.to(out.dtype.element_ty), mask=inside)


def normalize(
    pixels: torch.Tensor, out: torch.Tensor, scale: list[float], shift: list[float]
) -> None:
    """Write normalised pixels, on the current stream of their device.

    Args:
        pixels: (N, 3, H, W) uint8 in channels_last.
        out: The same shape in channels_last, of any floating-point type.
        scale: 3 factors.
        shift: 3 summands.
    """
    if count := pixels.numel():
        with torch.cuda.device_of(pixels):  # Triton launches on the current device
            _kernel[(triton.cdiv(count, _BLOCK),)](
                pixels, out, count, *scale, *shift, BLOCK=_BLOCK, enable_fp_fusion=True
            )
