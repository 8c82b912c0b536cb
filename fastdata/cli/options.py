"""Arguments and options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Amp(StrEnum):
    """Precision of the training step."""

    off = "off"
    bf16 = "bf16"
    fp16 = "fp16"


SPEED = "Speed and memory"

Data = Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")]
Model = Annotated[str, typer.Option(help="Name of a torchvision model.")]
Size = Annotated[int, typer.Option(help="Side of the training crops, in pixels.")]
BatchSize = Annotated[int, typer.Option(help="Images per batch.")]
Precision = Annotated[Amp, typer.Option("--amp", help="Mixed precision.", rich_help_panel=SPEED)]
Compile = Annotated[
    bool, typer.Option("--compile", help="Use torch.compile.", rich_help_panel=SPEED)
]
ChannelsLast = Annotated[
    bool,
    typer.Option("--channels-last", help="Use channels-last memory layout.", rich_help_panel=SPEED),
]
Device = Annotated[
    str | None, typer.Option(help="Device, such as cuda:1 or cpu; default: cuda if available.")
]
Threads = Annotated[
    int | None, typer.Option(help="Decoding threads; default: all cores but one or two.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
