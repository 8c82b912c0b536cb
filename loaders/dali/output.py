"""What comes out of DALI, as tensors that are ready for use on the consumer's stream."""

from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from fastdata.device.transfer import Arrived


def take_out(pipeline: Any, device: torch.device) -> tuple[torch.Tensor, list[Any]]:
    """Wait for a pipeline's next batch: images, (N, h, w, 3), and further outputs as they are.

    Nothing is copied: the memory is DALI's, and goes back to it when the last tensor of it is gone,
    on CUDA in the order of the stream that is current now.

    Raises:
        RuntimeError: DALI failed; the pipeline is of no use any more.
    """
    stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
    images, *others = pipeline.outputs(cuda_stream=stream)
    return from_dlpack(images.as_tensor()), others


def arrived(
    images: torch.Tensor,
    labels: torch.Tensor,
    valid: torch.Tensor,
    device: torch.device,
    dtype: torch.dtype | None,
) -> Arrived:
    """A batch on the device.

    Args:
        images: (views * N, h, w, 3) there.
        labels: (N,) int64 in host memory.
        valid: (N,) bool in host memory.
        device: Where they go.
        dtype: Type of the images that DALI may not have; None leaves them as they are.
    """
    pixels = images.permute(0, 3, 1, 2)  # (views * N, 3, h, w), channels_last
    if dtype is not None:
        pixels = pixels.to(dtype)
    if device.type == "cuda":  # page-locked, so that the copies are not waited for
        labels = labels.pin_memory().to(device, non_blocking=True)
        valid = valid.pin_memory().to(device, non_blocking=True)
    return Arrived(pixels, labels, valid)


def take_from(pipe: Any) -> Any:
    """Take out of a pipeline of DALI what it would shut down when the interpreter ends."""
    backend, pipe._pipe = pipe._pipe, None  # noqa: SLF001 - there is no other way
    return backend
