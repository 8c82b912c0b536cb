"""Commands about data sets."""

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import fastdata
from fastdata.cli import console
from fastdata.cli.options import Data, Json
from fastdata.images.limits import MAX_PIXELS
from fastdata.report import text


class Orient(StrEnum):
    """Handling of EXIF orientation."""

    keep = "keep"
    apply = "apply"


class Damaged(StrEnum):
    """Handling of damaged JPEGs."""

    skip = "skip"
    keep = "keep"


Packed = Annotated[Path, typer.Argument(help="A packed data set.")]

_SOURCE, _IMAGES, _OUTPUT, _RUN = "Source", "Images", "Output", "The run"


def pack(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of images, packed data set, tars, TFRecord, Parquet, Arrow, HDF5, LMDB or "
            "MDS: a file, a folder, or a pattern in quotes."
        ),
    ],
    destination: Annotated[Path, typer.Argument(help="FILE.lmdb, or a folder for tar shards.")],
    kind: Annotated[
        str | None,
        typer.Option(
            "--from", help="Source format, if it cannot be detected.", rich_help_panel=_SOURCE
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a table's column: image=NAME, label=NAME or key=NAME. Can be repeated.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(help="CSV or JSONL listing the files to pack.", rich_help_panel=_SOURCE),
    ] = None,
    fields: Annotated[
        str,
        typer.Option(
            help="Extra fields of samples, such as json,txt: files beside images, columns, or "
            "members of tars.",
            rich_help_panel=_SOURCE,
        ),
    ] = "",
    classes: Annotated[
        Path | None,
        typer.Option(
            help="File with class names, one per line, in label order.", rich_help_panel=_SOURCE
        ),
    ] = None,
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="Skip duplicate files.", rich_help_panel=_SOURCE)
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(help="Pack at most N randomly chosen files.", rich_help_panel=_SOURCE),
    ] = None,
    resize: Annotated[
        str | None,
        typer.Option(
            help="Resize images: 256 (shorter side), longest:512, or 224x224 (exact).",
            rich_help_panel=_IMAGES,
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="Re-encode all images as jpeg, png or raw.", rich_help_panel=_IMAGES),
    ] = None,
    quality: Annotated[
        int, typer.Option(help="Quality of re-encoded JPEGs.", rich_help_panel=_IMAGES)
    ] = 90,
    orient: Annotated[
        Orient,
        typer.Option(
            help="Apply EXIF orientation to the pixels, or keep them as stored.",
            rich_help_panel=_IMAGES,
        ),
    ] = Orient.keep,
    max_pixels: Annotated[
        int,
        typer.Option(help="Skip images with more pixels than this.", rich_help_panel=_IMAGES),
    ] = MAX_PIXELS,
    damaged: Annotated[
        Damaged,
        typer.Option(
            help="Skip damaged JPEGs, or keep as much of them as can be decoded.",
            rich_help_panel=_IMAGES,
        ),
    ] = Damaged.skip,
    keep_bytes: Annotated[
        bool,
        typer.Option(
            "--keep-bytes",
            help="Do not add restart markers to JPEGs; crops then decode whole images.",
            rich_help_panel=_IMAGES,
        ),
    ] = False,
    run_pixels: Annotated[
        int,
        typer.Option(help="Distance between restart markers, in pixels.", rich_help_panel=_IMAGES),
    ] = 32,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split into several data sets, such as train=0.9,val=0.1.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    shard_size: Annotated[
        str,
        typer.Option(
            help="Maximum size of a shard, such as 256MB or 1GiB.", rich_help_panel=_OUTPUT
        ),
    ] = "256MB",
    shuffle: Annotated[
        bool, typer.Option(help="Shuffle samples across shards.", rich_help_panel=_OUTPUT)
    ] = True,
    seed: Annotated[
        int, typer.Option(help="Random seed for shuffling.", rich_help_panel=_OUTPUT)
    ] = 0,
    network: Annotated[
        bool,
        typer.Option(
            "--network",
            help="Allow an LMDB file on a network file system.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace an existing data set.", rich_help_panel=_OUTPUT),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Reading threads; default: one per core.", rich_help_panel=_RUN),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail if a file would be skipped.", rich_help_panel=_RUN),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Estimate what would be packed, without writing anything.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Pack images into tar shards or one LMDB file.

    If packing is interrupted, rerun the command to resume.
    """
    selected: dict[str, Any] = {
        "kind": kind,
        "columns": _columns(column or []),
        "manifest": manifest,
        "fields": tuple(filter(None, fields.split(","))),
        "classes": classes,
        "dedupe": dedupe,
        "limit": limit,
    }
    coded: dict[str, Any] = {
        "resize": resize,
        "format": format,
        "quality": quality,
        "orient": orient.value,
        "max_pixels": max_pixels,
        "damaged": damaged.value,
    }
    if dry_run:
        from fastdata.converters.estimate import estimate_pack
        from fastdata.converters.images.coding import Coding
        from fastdata.converters.sources.open import Selection

        coding = Coding(run_pixels=None if keep_bytes else run_pixels, **coded)
        plan = estimate_pack(source, Selection(**selected), coding, workers)
        if as_json:
            console.print_json(dataclasses.asdict(plan))
        else:
            console.print_rows(text.estimate_rows(plan))
        return
    with console.packing_bar(hidden=as_json) as progress:
        report = fastdata.pack(
            source,
            destination,
            **selected,
            **coded,
            split=split,
            keep_bytes=keep_bytes,
            run_pixels=run_pixels,
            workers=workers,
            shard_size=shard_size,
            shuffle=shuffle,
            seed=seed,
            network=network,
            overwrite=overwrite,
            strict=strict,
            progress=progress,
        )
    if as_json:
        console.print_json(console.pack_json(report))
    else:
        console.print_rows(text.pack_rows(report))


def _columns(pairs: list[str]) -> dict[str, str]:
    """Column names by role, from texts such as ``image=NAME``."""
    columns = {}
    for pair in pairs:
        role, equals, name = pair.partition("=")
        if not equals or not name or role in columns:
            raise typer.BadParameter(
                f"{pair!r} is not of the form image=NAME, or names a column twice",
                param_hint="--column",
            )
        columns[role] = name
    return columns


def index(
    path: Annotated[Path, typer.Argument(help="Folder of tar shards, from any tool.")],
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace an existing catalog, or other tools' files."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Index existing tar shards, without copying them, so that they load as a data set."""
    from fastdata.converters.check.index import index as make_index

    with console.steps_bar(hidden=as_json) as progress:
        report = make_index(path, overwrite=overwrite, progress=progress)
    if as_json:
        console.print_json(dataclasses.asdict(report))
    else:
        console.print_rows(text.index_rows(report))


def verify(
    path: Packed,
    repair: Annotated[
        bool, typer.Option("--repair", help="Restore damaged images and files exactly.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(help="With --repair: the folder that was packed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a data set against its checksums.

    Exits with code 1 if anything is damaged.
    """
    from fastdata.converters.check.repair import repair as make_whole
    from fastdata.converters.check.verify import verify as check

    with console.steps_bar(hidden=as_json) as progress:
        fixed = make_whole(path, source, progress=progress).fixed if repair else ()
        report = check(path, progress=progress)
    if as_json:
        console.print_json({**dataclasses.asdict(report), "fixed": fixed})
    else:
        console.print_rows({"repaired": ", ".join(fixed)} if fixed else {})
        console.print_rows(text.verify_rows(report))
    if report.problems:
        raise typer.Exit(1)


def export(
    path: Packed,
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    as_json: Json = False,
) -> None:
    """Export a data set to a folder of images.

    If it is interrupted, rerun the command to resume.
    """
    from fastdata.loaders.export import export as write_back

    with console.steps_bar(hidden=as_json) as progress:
        report = write_back(path, folder, progress=progress)
    if as_json:
        console.print_json(dataclasses.asdict(report))
    else:
        console.print_rows(text.export_rows(report))


def show(
    path: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG or JPEG file to write.")],
    count: Annotated[int, typer.Option(help="Maximum number of images.")] = 64,
    columns: Annotated[int, typer.Option(help="Images per row.")] = 8,
    crops: Annotated[
        int | None, typer.Option(help="Draw frames of random training crops of this size.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for choosing images and crops.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw a contact sheet: images from every class, with their keys."""
    from fastdata.report.sheet import sheet

    crop = None if crops is None else fastdata.RandomResizedCrop(crops)
    drawn = sheet(path, output, count=count, columns=columns, crops=crop, seed=seed)
    if as_json:
        console.print_json(dataclasses.asdict(drawn))
    else:
        console.print_rows(text.sheet_rows(drawn))


def info(
    path: Data,
    order: Annotated[
        bool, typer.Option("--order", help="Compare how well the loader's orders mix samples.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Describe a data set: samples, classes, sizes, formats."""
    if order:
        from fastdata.loaders.order_quality import mixing

        found = mixing(path)
        if as_json:
            console.print_json([row._asdict() for row in found])
        else:
            console.print_rows(text.mixing_rows(found))
        return
    from fastdata.loaders.describe import describe

    facts = describe(path)
    if as_json:
        console.print_json(facts)
    else:
        console.print_rows(text.dataset_rows(facts))
