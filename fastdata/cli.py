"""The command line. Each command is thin: it parses, calls the library, and prints.

Exit codes: 0 done, 1 a check failed (damaged data), 2 bad input or usage, 130 interrupted.
"""

import dataclasses
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import fastdata
from fastdata import console, probe
from fastdata.errors import CorruptError, FastdataError

if TYPE_CHECKING:
    from fastdata.train import Progress

app = typer.Typer(
    name="fastdata",
    help="Pack image folders, feed PyTorch from them, and measure what comes of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Threads = Annotated[int | None, typer.Option(help="Decoding threads; default: all but 1 or 2.")]


class Amp(StrEnum):
    """Precision of the train step."""

    off = "off"
    bf16 = "bf16"
    fp16 = "fp16"


def main() -> NoReturn:
    """Run the command line; the module says which exit code means what."""
    # GNU OpenMP's threads spin at barriers, which on the CPU takes the cores from decoding
    # and from other programs. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        app()  # usage errors end here with 2, SIGINT with 130
    except FastdataError as error:
        console.err.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1 if isinstance(error, CorruptError) else 2)
    sys.exit(0)


def _version(show: bool) -> None:
    if show:
        typer.echo(fastdata.__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if probe.core() is None:
        console.err.print(
            "note: the native core was not built; it needs a C++ compiler and libjpeg-turbo",
            style="yellow",
            soft_wrap=True,
        )


@app.command()
def pack(
    source: Annotated[Path, typer.Argument(help="Folder of images, with class folders or flat.")],
    destination: Annotated[Path, typer.Argument(help="FILE.lmdb, or a folder for tar shards.")],
    shard_size: Annotated[str, typer.Option(help="Largest shard, as 256MB or 1GiB.")] = "256MB",
    workers: Annotated[int | None, typer.Option(help="Reading threads; default: all.")] = None,
    shuffle: Annotated[bool, typer.Option(help="Mix the samples over the shards.")] = True,
    seed: Annotated[int, typer.Option(help="Of the shuffle.")] = 0,
    keep_bytes: Annotated[
        bool, typer.Option("--keep-bytes", help="Do not code JPEGs anew in restart runs.")
    ] = False,
    run_pixels: Annotated[int, typer.Option(help="Width of the restart runs.")] = 32,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another pack.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Make a skipped file an error.")] = False,
    as_json: Json = False,
) -> None:
    """Pack a folder of images into tar shards or one LMDB file."""
    with console.packing_bar(hidden=as_json) as progress:
        report = fastdata.pack(
            source,
            destination,
            shard_size=shard_size,
            workers=workers,
            shuffle=shuffle,
            seed=seed,
            keep_bytes=keep_bytes,
            run_pixels=run_pixels,
            overwrite=overwrite,
            strict=strict,
            progress=progress,
        )
    if as_json:
        console.print_json(console.pack_json(report))
    else:
        console.print_rows(console.pack_rows(report))


@app.command()
def info(
    path: Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")],
    as_json: Json = False,
) -> None:
    """Describe a packed data set or a folder."""
    from fastdata.loaders.describe import describe

    facts = describe(path)
    if as_json:
        console.print_json(facts)
    else:
        console.print_rows(console.dataset_rows(facts))


@app.command()
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


@app.command()
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
