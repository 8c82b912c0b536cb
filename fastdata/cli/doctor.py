"""The command that finds the bottleneck of training."""

import dataclasses
from typing import Annotated

import typer

from fastdata.cli import console
from fastdata.cli.options import (
    Amp,
    BatchSize,
    ChannelsLast,
    Compile,
    Data,
    Device,
    Json,
    Precision,
    Size,
    Threads,
)


def doctor(
    path: Data,
    model: Annotated[
        str, typer.Option(help="Name of a torchvision model; none: do not measure a model.")
    ] = "resnet18",
    size: Size = 224,
    batch_size: BatchSize = 64,
    amp: Precision = Amp.off,
    compile: Compile = False,
    channels_last: ChannelsLast = False,
    device: Device = None,
    threads: Threads = None,
    prefetch: Annotated[int, typer.Option(help="Batches that the loader prepares ahead.")] = 2,
    seconds: Annotated[float, typer.Option(help="Time for each measurement, in seconds.")] = 3.0,
    apply: Annotated[
        bool, typer.Option("--apply", help="Print Python code for a loader with the fix.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find the bottleneck of training, and suggest a fix.

    Measures storage, decoding, the copy to the device and the model, each on its own.
    """
    from fastdata.doctor import STEPS, examine
    from fastdata.doctor.render import render
    from fastdata.train.recipe import Recipe

    recipe = Recipe(
        model=model, size=size, batch_size=batch_size, amp=amp.value, compile=compile,
        channels_last=channels_last,
    )  # fmt: skip
    with console.steps_bar(hidden=as_json) as step:
        diagnosis = examine(
            path,
            recipe,
            with_model=model != "none",
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
