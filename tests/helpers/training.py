"""What the tests of training share."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import nn

from fastdata.train import Recipe, Setup, TrainReport
from fastdata.train import train as train_fully

COLOURS = {"blue": (200, 40, 40), "green": (40, 200, 40), "red": (40, 40, 200)}  # as OpenCV: BGR


def colours(
    root: Path, each: int, classes: tuple[str, ...] = tuple(COLOURS), seed: int = 0
) -> Path:
    """A folder of noisy pictures, each class of a colour of its own."""
    generator = np.random.default_rng(seed)
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(each):
            noise = generator.normal(0, 30, (40, 48, 3))
            pixels = np.clip(noise + COLOURS.get(name, (0, 0, 0)), 0, 255).astype(np.uint8)
            assert cv2.imwrite(str(root / name / f"{number}.png"), pixels)
    return root


class Killed(BaseException):
    """The end of a process, as far as a test can have it."""


def recipe(**switches: Any) -> Recipe:
    """Small images, few at once."""
    return Recipe(**{"size": 16, "batch_size": 4, "epochs": 2, **switches})


def train(path: Path | str, chosen: Recipe, **options: Any) -> TrainReport:
    """A run of a second, without the ceiling."""
    settings = {field.name for field in fields(Setup)} & options.keys()
    setup: dict[str, Any] = {"device": "cpu", "ceiling_seconds": 0, "threads": 1}
    setup |= {name: options.pop(name) for name in settings}
    return train_fully(path, chosen, Setup(**setup), **options)


def plain_network(*, drop: float = 0.0, norm: bool = False) -> nn.Sequential:
    """A small network, the same each time; without its options nothing in it depends on batches."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8) if norm else nn.GroupNorm(2, 8),
            nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(drop), nn.Linear(32, 3),
        )  # fmt: skip


def weights(network: nn.Module) -> torch.Tensor:
    """All numbers of a network, statistics included, in one row."""
    return torch.cat([tensor.flatten().double() for tensor in network.state_dict().values()])
