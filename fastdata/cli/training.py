"""Commands that train."""

import os
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastdata.cli import console
from fastdata.cli.options import Json, Threads

if TYPE_CHECKING:
    from fastdata.train import Progress


class Amp(StrEnum):
    """Precision of the train step."""

    off = "off"
    bf16 = "bf16"
    fp16 = "fp16"


class Optimizer(StrEnum):
    """Optimisers."""

    sgd = "sgd"
    adamw = "adamw"


class Schedule(StrEnum):
    """Schedules of the learning rate."""

    onecycle = "onecycle"
    cosine = "cosine"


_LEARNING, _QUALITY, _SPEED, _RUN = "Learning", "Quality", "Speed and memory", "The run"


def train(
    path: Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")],
    val: Annotated[Path | None, typer.Option(help="Data set to validate on.")] = None,
    model: Annotated[str, typer.Option(help="A model of torchvision.")] = "resnet18",
    size: Annotated[int, typer.Option(help="Side of the images in pixels.")] = 224,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Images that a rank takes at once.")] = 64,
    accumulate: Annotated[
        int, typer.Option(help="Batches to a step.", rich_help_panel=_LEARNING)
    ] = 1,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Highest learning rate; default: 0.1 for 256 images a step (sgd), 0.0005 for 512 "
            "(adamw).",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    optimizer: Annotated[
        Optimizer, typer.Option(help="Optimiser.", rich_help_panel=_LEARNING)
    ] = Optimizer.sgd,
    momentum: Annotated[float, typer.Option(help="Of sgd.", rich_help_panel=_LEARNING)] = 0.9,
    weight_decay: Annotated[
        float | None,
        typer.Option(help="Default: 0.0001 (sgd), 0.05 (adamw).", rich_help_panel=_LEARNING),
    ] = None,
    schedule: Annotated[
        Schedule, typer.Option(help="Learning rate over time.", rich_help_panel=_LEARNING)
    ] = Schedule.onecycle,
    warmup: Annotated[
        float | None,
        typer.Option(
            help="Share of the steps before the highest rate; default: 0.3 (onecycle), 0.05.",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Largest norm of a gradient.", rich_help_panel=_LEARNING)
    ] = None,
    label_smoothing: Annotated[
        float, typer.Option(help="Share of a label for all classes.", rich_help_panel=_QUALITY)
    ] = 0.0,
    mixup: Annotated[float, typer.Option(help="Alpha of MixUp.", rich_help_panel=_QUALITY)] = 0.0,
    cutmix: Annotated[float, typer.Option(help="Alpha of CutMix.", rich_help_panel=_QUALITY)] = 0.0,
    erasing: Annotated[
        float, typer.Option(help="Probability of random erasing.", rich_help_panel=_QUALITY)
    ] = 0.0,
    ema: Annotated[
        float | None,
        typer.Option(help="Decay of averaged weights, by step.", rich_help_panel=_QUALITY),
    ] = None,
    amp: Annotated[Amp, typer.Option(help="Mixed precision.", rich_help_panel=_SPEED)] = Amp.off,
    channels_last: Annotated[
        bool,
        typer.Option(
            "--channels-last", help="Lay out weights channels last.", rich_help_panel=_SPEED
        ),
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Use torch.compile.", rich_help_panel=_SPEED)
    ] = False,
    fused: Annotated[
        bool, typer.Option(help="Update all weights in one kernel.", rich_help_panel=_SPEED)
    ] = True,
    checkpointing: Annotated[
        bool,
        typer.Option("--checkpointing", help="Compute activations twice.", rich_help_panel=_SPEED),
    ] = False,
    tf32: Annotated[
        bool,
        typer.Option("--tf32", help="Multiply float32 in TF32 on CUDA.", rich_help_panel=_SPEED),
    ] = False,
    sync_bn: Annotated[
        bool,
        typer.Option(
            "--sync-bn", help="Batch statistics over all ranks (CUDA).", rich_help_panel=_SPEED
        ),
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Only deterministic kernels.", rich_help_panel=_SPEED),
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to save the run in.", rich_help_panel=_RUN)
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(help="Steps between checkpoints, beside epochs.", rich_help_panel=_RUN),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on from the checkpoint, if it is there.", rich_help_panel=_RUN
        ),
    ] = False,
    profile: Annotated[
        Path | None, typer.Option(help="File for a profiler's trace.", rich_help_panel=_RUN)
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for TensorBoard's scalars.", rich_help_panel=_RUN)
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a rank waits for others.", rich_help_panel=_RUN)
    ] = 600.0,
    device: Annotated[
        str | None, typer.Option(help="Default: cuda where there is one.", rich_help_panel=_RUN)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.", rich_help_panel=_RUN)] = 0,
    ceiling_seconds: Annotated[
        float, typer.Option(help="Time to measure the ceiling; 0: not.", rich_help_panel=_RUN)
    ] = 15.0,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model of torchvision, and measure the share of the ceiling.

    On several GPUs: torchrun --nproc-per-node 8 -m fastdata train ...
    """
    given = dict(locals())
    from fastdata.train import Recipe, train
    from fastdata.train.render import render

    first = os.environ.get("RANK", "0") == "0"  # only this rank of torchrun speaks
    with console.steps_bar(hidden=as_json or not first) as step:

        def progress(at: "Progress") -> None:
            step(f"{at.phase} {at.epoch + 1}" if at.phase == "train" else at.phase, *at[2:4])

        recipe = Recipe(**{field.name: _plain(given[field.name]) for field in fields(Recipe)})
        report = train(
            path,
            recipe,
            val=val,
            device=device,
            threads=threads,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            profile=profile,
            tensorboard=tensorboard,
            timeout=timeout,
            ceiling_seconds=ceiling_seconds,
            progress=progress,
        )
    if not first:
        return
    if as_json:
        console.print_json(asdict(report))
    else:
        console.out.print(render(report))


def _plain(value: Any) -> Any:
    """A choice as the string that it is."""
    return value.value if isinstance(value, StrEnum) else value


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
        console.out.print(f"\nreport: {report.html}", highlight=False, markup=False)
