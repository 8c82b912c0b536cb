"""The command that finds out what limits training."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fastdata.cli import console
from fastdata.cli.options import Json, Threads
from fastdata.cli.training import Amp


def doctor(
    path: Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")],
    model: Annotated[str, typer.Option(help="A model of torchvision, or none.")] = "resnet18",
    size: Annotated[int, typer.Option(help="Side of the crops in pixels.")] = 224,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 64,
    amp: Annotated[Amp, typer.Option(help="Mixed precision.")] = Amp.off,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Lay out weights channels last.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="Default: cuda where there is one.")] = None,
    threads: Threads = None,
    prefetch: Annotated[int, typer.Option(help="Batches that the loader begins ahead.")] = 2,
    seconds: Annotated[float, typer.Option(help="Time for each measurement.")] = 3.0,
    apply: Annotated[
        bool, typer.Option("--apply", help="Print the line of Python that makes the loader.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure storage, decoding, copy and model, and say what limits and what to change."""
    from fastdata.doctor import STEPS, examine
    from fastdata.doctor.render import render

    with console.steps_bar(hidden=as_json) as step:
        diagnosis = examine(
            path,
            model=None if model == "none" else model,
            size=size,
            batch_size=batch_size,
            amp=amp,
            compile=compile,
            channels_last=channels_last,
            device=device,
            threads=threads,
            prefetch=prefetch,
            seconds=seconds,
            progress=lambda _, done: step("examining", done, len(STEPS)),
        )
    if as_json:
        console.print_json(dataclasses.asdict(diagnosis))
    else:
        console.out.print(render(diagnosis))
        if apply:
            console.out.print(diagnosis.loader, markup=False, highlight=False, soft_wrap=True)
