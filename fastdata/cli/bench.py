"""Benchmarks of training."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from fastdata.cli import console
from fastdata.cli.options import Json, Threads
from fastdata.cli.training import Amp
from fastdata.system.files import write_atomically

app = typer.Typer(help="Measure training: the whole ladder, or its share of the ceiling.")

Data = Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")]
Model = Annotated[str, typer.Option(help="A model of torchvision.")]
Size = Annotated[int, typer.Option(help="Side of the images in pixels.")]
Device = Annotated[str | None, typer.Option(help="Default: cuda where there is one.")]


@app.command()
def ladder(
    path: Data,
    work: Annotated[
        Path | None, typer.Option(help="For packed images and report; default: PATH-bench.")
    ] = None,
    model: Model = "resnet18",
    size: Size = 224,
    batch_size: Annotated[int, typer.Option(help="Images a step of the upper rungs.")] = 256,
    workers: Annotated[
        int | None, typer.Option(help="That load; default: all cores but 1 or 2.")
    ] = None,
    device: Device = None,
    seconds: Annotated[float, typer.Option(help="Timed seconds of each rung.")] = 10.0,
    steps: Annotated[int | None, typer.Option(help="Timed steps, in place of seconds.")] = None,
    compile: Annotated[bool, typer.Option(help="With torch.compile.")] = True,
    as_json: Json = False,
) -> None:
    """Train in ever better ways, from a plain DataLoader to the full step, and measure each."""
    from fastdata import report as html
    from fastdata.bench import LadderReport, ladder
    from fastdata.bench.render import render_ladder
    from fastdata.report.ladder import ladder_page

    def save(found: LadderReport) -> None:
        text = json.dumps(dataclasses.asdict(found), indent=1) + "\n"
        write_atomically(Path(found.work) / "ladder.json", text.encode())

    with console.steps_bar(hidden=as_json) as progress:
        found = ladder(
            path, work=work, model=model, size=size, batch_size=batch_size, workers=workers,
            device=device, seconds=seconds, steps=steps, compile=compile, progress=progress,
            save=save,
        )  # fmt: skip
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
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 64,
    amp: Annotated[Amp, typer.Option(help="Mixed precision.")] = Amp.off,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Lay out weights channels last.")
    ] = False,
    device: Device = None,
    threads: Threads = None,
    seconds: Annotated[float, typer.Option(help="For all rounds, roughly.")] = 60.0,
    rounds: Annotated[int, typer.Option(min=5, help="Interleaved rounds.")] = 5,
    cold: Annotated[bool, typer.Option(help="Begin with a cold page cache.")] = True,
    at_least: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Exit with 1 below this share.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure real data against a batch that stays on the device, and the loader's interference."""
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
            f"{found.ceiling.share:.1%} of the ceiling; {at_least:.1%} were asked for", style="red"
        )
        raise typer.Exit(1)
