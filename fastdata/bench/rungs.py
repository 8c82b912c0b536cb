"""The rungs of the ladder: from the plainest loop to the whole step, one thing at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_SMALLER = (
    4  # the lower rungs take a batch of this part of the size: few know theirs could be larger
)


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One way to train. Each rung differs from the one below it in one field, besides its name.

    Attributes:
        name: What it adds, in a word or two.
        adds: What that means, in a sentence.
        loader: ``"ImageFolder"``, with torch's DataLoader over the image folder and torchvision's
            transforms of Pillow images, or ``"fastdata"`` over the packed images. The latter
            pins, copies on a stream of its own and normalises on the device by itself.
        workers: Processes of the DataLoader, or decoding threads of fastdata.
        pinned: Page-locked memory, and copies that the host does not wait for.
        batch_size: Images a step.
        uint8: Pixels go to the device as bytes, and are normalised there.
        amp: As in :class:`fastdata.train.recipe.Recipe`, and so are the next, ``compile`` and
            ``fused``.
        channels_last: Memory layout of weights and images.
        cudnn_benchmark: cuDNN tries its kernels out and takes the fastest.
        compile: ``torch.compile``.
        fused: One kernel updates all weights.
        needs_cuda: Whether what it adds is there on CUDA alone.
    """

    name: str
    adds: str
    batch_size: int
    loader: str = "ImageFolder"
    workers: int = 0
    pinned: bool = False
    uint8: bool = False
    amp: str = "off"
    channels_last: bool = False
    cudnn_benchmark: bool = False
    compile: bool = False
    fused: bool = False
    needs_cuda: bool = False


def rungs(*, batch_size: int, workers: int, compile: bool = True) -> tuple[Rung, ...]:
    """All rungs from the bottom to the top.

    Args:
        batch_size: Images a step of the upper rungs; the lowest three have a quarter of it.
        workers: Processes, later threads, that load.
        compile: Whether ``torch.compile`` is one of them.
    """
    return tuple(_climb(batch_size, workers, compile=compile))


def _climb(batch_size: int, workers: int, *, compile: bool) -> Iterator[Rung]:
    rung = Rung(
        name="plain",
        adds="ImageFolder and a DataLoader without workers; float32 normalised on the host, "
        "copied from pageable memory",
        batch_size=max(1, batch_size // _SMALLER),
    )
    yield rung
    steps: list[tuple[str, str, dict[str, Any]]] = [
        ("workers", f"{workers} worker processes decode", {"workers": workers}),
        ("pinned", "page-locked memory, copies that the host does not wait for", {"pinned": True}),
        ("batch", f"batches of {batch_size} images", {"batch_size": batch_size}),
        ("uint8", "a quarter of the bytes to copy; normalised on the device", {"uint8": True}),
        ("fastdata", "fastdata.Loader on the packed images", {"loader": "fastdata"}),
        ("bf16", "mixed precision in bfloat16", {"amp": "bf16"}),
        ("channels_last", "weights laid out as the images arrive", {"channels_last": True}),
        ("cudnn", "cuDNN tries out its kernels", {"cudnn_benchmark": True}),
        ("compile", "torch.compile", {"compile": True}),
        ("fused", "one kernel updates all weights", {"fused": True}),
    ]
    for name, adds, change in steps:
        if name != "compile" or compile:
            rung = replace(
                rung, name=name, adds=adds, needs_cuda=name in ("pinned", "cudnn"), **change
            )
            yield rung
