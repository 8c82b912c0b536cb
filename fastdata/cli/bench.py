"""Benchmarks of training."""

import dataclasses
import json
from pathlib import Path
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
    Model,
    Precision,
    Size,
    Threads,
)
from fastdata.system.files import write_atomically

app = typer.Typer(help="Benchmark training, from a plain loop to the speed without loading.")


@app.command()
def ladder(
    path: Data,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder for packed images and report; default: PATH-bench."),
    ] = None,
    model: Model = "resnet18",
    size: Size = 224,
    batch_size: Annotated[
        int, typer.Option(help="Images per batch; the first rungs use a quarter of it.")
    ] = 256,
    workers: Annotated[
        int | None,
        typer.Option(help="Loading processes or threads; default: all cores but one or two."),
    ] = None,
    device: Device = None,
    seconds: Annotated[float, typer.Option(help="Time to measure each rung, in seconds.")] = 10.0,
    steps: Annotated[
        int | None, typer.Option(help="Steps to measure per rung, instead of --seconds.")
    ] = None,
    compile: Annotated[bool, typer.Option(help="Include the rung with torch.compile.")] = True,
    as_json: Json = False,
) -> None:
    """Measure training from a plain DataLoader to the full step, adding one thing at a time."""
    from fastdata import report as html
    from fastdata.bench import LadderReport, LadderSettings, ladder
    from fastdata.bench.render import render_ladder
    from fastdata.report.ladder import ladder_page

    def save(found: LadderReport) -> None:
        text = json.dumps(dataclasses.asdict(found), indent=1) + "\n"
        write_atomically(Path(found.work) / "ladder.json", text.encode())

    settings = LadderSettings(
        model=model, size=size, batch_size=batch_size, workers=workers, device=device,
        seconds=seconds, steps=steps, compile=compile,
    )  # fmt: skip
    with console.steps_bar(hidden=as_json) as progress:
        found = ladder(path, settings, work=work, progress=progress, save=save)
    folder = Path(found.work)
    if as_json:
        console.print_json(dataclasses.asdict(found))
    else:
        console.out.print(render_ladder(found))
    html.write_page(folder / "ladder.html", ladder_page(found))
    if not as_json:
        console.out.print(f"\nreport: {folder / 'ladder.html'}", highlight=False, markup=False)


@app.command()
def ceiling(
    path: Data,
    model: Model = "resnet18",
    size: Size = 224,
    batch_size: BatchSize = 64,
    amp: Precision = Amp.off,
    compile: Compile = False,
    channels_last: ChannelsLast = False,
    device: Device = None,
    threads: Threads = None,
    seconds: Annotated[float, typer.Option(help="Time for all rounds, in seconds.")] = 60.0,
    rounds: Annotated[
        int, typer.Option(min=5, help="Rounds, each of which measures every case.")
    ] = 5,
    cold: Annotated[bool, typer.Option(help="Begin with a pass on a cold page cache.")] = True,
    at_least: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Exit with code 1 if the share is below this."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure training on real data as a share of its speed without loading.

    The ceiling is the speed on one batch that stays on the device.
    """
    from fastdata.bench import bench_ceiling
    from fastdata.bench.render import render_ceiling
    from fastdata.train.recipe import Recipe

    recipe = Recipe(
        model=model, size=size, batch_size=batch_size, amp=amp.value, compile=compile,
        channels_last=channels_last,
    )  # fmt: skip
    with console.steps_bar(hidden=as_json) as progress:
        found = bench_ceiling(
            path, recipe, device=device, threads=threads, seconds=seconds, rounds=rounds,
            cold=cold, progress=progress,
        )  # fmt: skip
    if as_json:
        console.print_json(dataclasses.asdict(found))
    else:
        console.out.print(render_ceiling(found))
    if at_least is not None and found.ceiling.share < at_least:
        console.err.print(
            f"{found.ceiling.share:.1%} of the ceiling, below the required {at_least:.1%}",
            style="red",
        )
        raise typer.Exit(1)
