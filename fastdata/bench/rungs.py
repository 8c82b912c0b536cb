"""The rungs of the ladder, from the plainest loop to the full step, and what they share."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from fastdata.errors import OptionError
from fastdata.train.recipe import Recipe

# The lowest rungs train with smaller batches: few users of a plain loop know what theirs could be.
_SMALLER = 4


@dataclass(frozen=True, kw_only=True)
class LadderSettings:
    """What all rungs of a ladder have in common.

    Attributes:
        model: torchvision's name of the model.
        size: Side of the training crops in pixels.
        batch_size: Images a step in the upper rungs; the lowest three have a quarter of it.
        workers: Loading processes, in the upper rungs threads; None leaves one or two cores to the
            training step.
        device: Where to train; None is CUDA if there is a GPU, otherwise the CPU.
        seconds: Timed seconds of each rung on real data, roughly, and half of that on the resident
            batch.
        steps: Timed steps of each, in place of ``seconds``.
        compile: Whether ``torch.compile``, which takes minutes on a CPU, is one of the rungs.
    """

    model: str = "resnet18"
    size: int = 224
    batch_size: int = 256
    workers: int | None = None
    device: str | torch.device | None = None
    seconds: float = 10.0
    steps: int | None = None
    compile: bool = True

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            OptionError: One is out of range.
        """
        Recipe(model=self.model, size=self.size, batch_size=self.batch_size)  # checks these
        if self.workers is not None and self.workers < 1:
            raise OptionError(f"workers must be 1 or more, not {self.workers}")
        if not 0 < self.seconds < float("inf"):
            raise OptionError(f"seconds must be a positive number, not {self.seconds}")
        if self.steps is not None and self.steps < 1:
            raise OptionError(f"steps must be 1 or more, not {self.steps}")


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One way to train. Each rung differs from the one below it in one field, besides its name.

    Attributes:
        name: What it adds, in a word or two.
        adds: The same in a sentence.
        loader: ``"ImageFolder"``, with torch's DataLoader over the image folder and torchvision's
            transforms of Pillow images, or ``"fastdata"`` over the packed images. The latter
            pins memory, copies on its own stream and normalises on the device by itself.
        workers: Processes of the DataLoader, or decoding threads of fastdata.
        pinned: Use page-locked memory, and copies that the host does not wait for.
        batch_size: Images a step.
        uint8: Copy pixels to the device as bytes, and normalise them there.
        amp: As in :class:`fastdata.train.recipe.Recipe`.
        channels_last: As in the recipe.
        cudnn_benchmark: Let cuDNN try its kernels out and take the fastest.
        compile: As in the recipe.
        fused: As in the recipe.
        needs_cuda: Whether the addition exists on CUDA only.
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
        batch_size: Images a step in the upper rungs; the lowest three have a quarter of it.
        workers: Loading processes, in the upper rungs threads.
        compile: Whether ``torch.compile`` is one of the rungs.
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
