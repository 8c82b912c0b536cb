"""Commands that train."""

import os
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdata.cli import console
from fastdata.cli.options import (
    SPEED,
    Amp,
    ChannelsLast,
    Compile,
    Data,
    Json,
    Model,
    Precision,
    Size,
)

if TYPE_CHECKING:
    from fastdata.train import Progress


class Optimizer(StrEnum):
    """Optimisers."""

    sgd = "sgd"
    adamw = "adamw"


class Schedule(StrEnum):
    """Schedules of the learning rate."""

    onecycle = "onecycle"
    cosine = "cosine"


_LEARNING, _QUALITY, _RUN = "Learning", "Regularisation", "The run"


def train(
    path: Data,
    val: Annotated[Path | None, typer.Option(help="Data set to validate on.")] = None,
    model: Model = "resnet18",
    size: Size = 224,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Images per batch on each rank.")] = 64,
    accumulate: Annotated[
        int, typer.Option(help="Batches per optimiser step.", rich_help_panel=_LEARNING)
    ] = 1,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Highest learning rate; default: 0.1 per 256 images a step (sgd), 0.0005 per 512 "
            "(adamw).",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    optimizer: Annotated[
        Optimizer, typer.Option(help="Optimiser.", rich_help_panel=_LEARNING)
    ] = Optimizer.sgd,
    momentum: Annotated[
        float, typer.Option(help="Momentum of sgd.", rich_help_panel=_LEARNING)
    ] = 0.9,
    weight_decay: Annotated[
        float | None,
        typer.Option(
            help="Weight decay; default: 0.0001 (sgd), 0.05 (adamw).", rich_help_panel=_LEARNING
        ),
    ] = None,
    schedule: Annotated[
        Schedule, typer.Option(help="Learning rate schedule.", rich_help_panel=_LEARNING)
    ] = Schedule.onecycle,
    warmup: Annotated[
        float | None,
        typer.Option(
            help="Fraction of the steps that warm up; default: 0.3 (onecycle), 0.05 (cosine).",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Maximum gradient norm.", rich_help_panel=_LEARNING)
    ] = None,
    label_smoothing: Annotated[
        float, typer.Option(help="Label smoothing.", rich_help_panel=_QUALITY)
    ] = 0.0,
    mixup: Annotated[
        float, typer.Option(help="Alpha of MixUp; 0: off.", rich_help_panel=_QUALITY)
    ] = 0.0,
    cutmix: Annotated[
        float, typer.Option(help="Alpha of CutMix; 0: off.", rich_help_panel=_QUALITY)
    ] = 0.0,
    erasing: Annotated[
        float, typer.Option(help="Probability of random erasing.", rich_help_panel=_QUALITY)
    ] = 0.0,
    ema: Annotated[
        float | None,
        typer.Option(
            help="Validate a moving average of the weights with this decay.",
            rich_help_panel=_QUALITY,
        ),
    ] = None,
    amp: Precision = Amp.off,
    channels_last: ChannelsLast = False,
    compile: Compile = False,
    fused: Annotated[
        bool, typer.Option(help="Update all weights in one kernel.", rich_help_panel=SPEED)
    ] = True,
    checkpointing: Annotated[
        bool,
        typer.Option(
            "--checkpointing",
            help="Recompute activations to save memory.",
            rich_help_panel=SPEED,
        ),
    ] = False,
    tf32: Annotated[
        bool,
        typer.Option("--tf32", help="Allow TF32 on CUDA.", rich_help_panel=SPEED),
    ] = False,
    sync_bn: Annotated[
        bool,
        typer.Option(
            "--sync-bn",
            help="Synchronise batch norm across ranks (CUDA only).",
            rich_help_panel=SPEED,
        ),
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help="Use deterministic kernels only.", rich_help_panel=SPEED
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File for checkpoints.", rich_help_panel=_RUN)
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            help="Also write a checkpoint every N steps within an epoch.", rich_help_panel=_RUN
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume from the checkpoint, if it exists.", rich_help_panel=_RUN
        ),
    ] = False,
    profile: Annotated[
        Path | None, typer.Option(help="File for a profiler trace.", rich_help_panel=_RUN)
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for TensorBoard logs.", rich_help_panel=_RUN)
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="Seconds that a rank waits for the others before failing.", rich_help_panel=_RUN
        ),
    ] = 600.0,
    device: Annotated[
        str | None,
        typer.Option(
            help="Device, such as cuda:1 or cpu; default: cuda if available.", rich_help_panel=_RUN
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="Decoding threads; default: all cores but one or two.", rich_help_panel=_RUN
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed for everything.", rich_help_panel=_RUN)
    ] = 0,
    ceiling_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds to measure the speed without loading; 0: skip it.",
            rich_help_panel=_RUN,
        ),
    ] = 15.0,
    as_json: Json = False,
) -> None:
    """Train a torchvision model, and measure how much loading slows it down.

    On several GPUs: torchrun --nproc-per-node 8 -m fastdata train ...
    """
    given = dict(locals())
    from fastdata.train import Recipe, Setup, train
    from fastdata.train.render import render

    first = os.environ.get("RANK", "0") == "0"  # torchrun's other ranks print nothing
    with console.steps_bar(hidden=as_json or not first) as step:

        def progress(at: "Progress") -> None:
            step(f"{at.phase} {at.epoch + 1}" if at.phase == "train" else at.phase, *at[2:4])

        report = train(
            path,
            Recipe(**{field.name: _plain(given[field.name]) for field in fields(Recipe)}),
            Setup(**{field.name: given[field.name] for field in fields(Setup)}),
            val=val,
            progress=progress,
        )
    if not first:
        return
    if as_json:
        console.print_json(asdict(report))
    else:
        console.out.print(render(report))


def _plain(value: Any) -> Any:
    """The string of a choice; any other value as it is."""
    return value.value if isinstance(value, StrEnum) else value


def demo(
    folder: Annotated[
        Path, typer.Argument(help="Folder for images, packed data sets and the report.")
    ] = Path("demo"),
    as_json: Json = False,
) -> None:
    """Generate images, pack them, train on them, and write a report.

    Takes about two minutes on two cores.
    """
    from fastdata.demo import demo, render, to_json

    with console.steps_bar(hidden=as_json) as progress:
        report = demo(folder, progress=progress)
    if as_json:
        typer.echo(to_json(report))
    else:
        console.out.print(render(report))
        console.out.print(f"\nreport: {report.html}", highlight=False, markup=False)
