"""Commands that train."""

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastdata import console
from fastdata.cli.options import Json, Threads

if TYPE_CHECKING:
    from fastdata.train import Progress


class Amp(StrEnum):
    """Precision of the train step."""

    off = "off"
    bf16 = "bf16"
    fp16 = "fp16"


def train(
    path: Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")],
    val: Annotated[Path | None, typer.Option(help="Data set to validate on.")] = None,
    model: Annotated[str, typer.Option(help="A model of torchvision.")] = "resnet18",
    size: Annotated[int, typer.Option(help="Side of the images in pixels.")] = 224,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 64,
    lr: Annotated[
        float | None, typer.Option(help="Highest learning rate; default: 0.1 for 256 images.")
    ] = None,
    amp: Annotated[Amp, typer.Option(help="Mixed precision.")] = Amp.off,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Lay out weights channels last.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="Default: cuda where there is one.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order and crops.")] = 0,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model of torchvision, and measure the share of the ceiling."""
    from fastdata.train import train
    from fastdata.train.render import render

    with console.steps_bar(hidden=as_json) as step:

        def progress(at: "Progress") -> None:
            step(f"{at.phase} {at.epoch + 1}" if at.phase == "train" else at.phase, *at[2:4])

        report = train(
            path,
            val=val,
            model=model,
            size=size,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            amp=amp.value,
            compile=compile,
            channels_last=channels_last,
            device=device,
            seed=seed,
            threads=threads,
            progress=progress,
        )
    if as_json:
        console.print_json(dataclasses.asdict(report))
    else:
        console.out.print(render(report))


def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put pictures, packs and report.")] = Path(
        "demo"
    ),
    as_json: Json = False,
) -> None:
    """Generate pictures, pack them, train on them, and write a report: two minutes on two cores."""
    from fastdata.demo import demo, render, to_json

    with console.steps_bar(hidden=as_json) as progress:
        report = demo(folder, progress=progress)
    if as_json:
        typer.echo(to_json(report))
    else:
        console.out.print(render(report))
        console.out.print(f"\nreport: {report.html}", highlight=False)
