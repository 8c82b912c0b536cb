"""Commands about data sets."""

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fastdata
from fastdata.cli import console
from fastdata.cli.options import Json
from fastdata.converters.pack import Choice
from fastdata.images.limits import MAX_PIXELS


class Orient(StrEnum):
    """What to do with EXIF orientation."""

    keep = "keep"
    apply = "apply"


class Damaged(StrEnum):
    """What to do with damaged JPEGs."""

    skip = "skip"
    keep = "keep"


Packed = Annotated[Path, typer.Argument(help="A packed data set.")]


def pack(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of images; packed data set; tars, TFRecord, Parquet, Arrow, HDF5, LMDB, "
            "MDS: a file, a folder or a pattern in quotes."
        ),
    ],
    destination: Annotated[Path, typer.Argument(help="FILE.lmdb, or a folder for tar shards.")],
    kind: Annotated[
        str | None, typer.Option("--from", help="What the source is, where it is two things.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Which column of a table is what: image=NAME, label=NAME, key=NAME."),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="CSV or JSON lines: path, label, fields; instead of all.")
    ] = None,
    fields: Annotated[
        str,
        typer.Option(help="Fields, as json,txt: files beside images, columns, members of tars."),
    ] = "",
    classes: Annotated[
        Path | None, typer.Option(help="Names of the classes, one a line, in label order.")
    ] = None,
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Leave out equal files.")] = False,
    limit: Annotated[int | None, typer.Option(help="Most files, drawn at random.")] = None,
    split: Annotated[str | None, typer.Option(help="Parts, as train=0.9,val=0.1.")] = None,
    resize: Annotated[
        str | None, typer.Option(help="256 (shorter side), longest:512, or 224x224 (exact).")
    ] = None,
    format: Annotated[str | None, typer.Option(help="Code all as jpeg, png or raw.")] = None,
    quality: Annotated[int, typer.Option(help="Of JPEGs that are coded from pixels.")] = 90,
    orient: Annotated[
        Orient, typer.Option(help="Whether to turn pixels upright by EXIF.")
    ] = Orient.keep,
    max_pixels: Annotated[
        int, typer.Option(help="Skip images with more pixels: width times height.")
    ] = MAX_PIXELS,
    damaged: Annotated[
        Damaged, typer.Option(help="Leave damaged JPEGs out, or pack what can be decoded of them.")
    ] = Damaged.skip,
    keep_bytes: Annotated[
        bool, typer.Option("--keep-bytes", help="Do not code JPEGs anew in restart runs.")
    ] = False,
    run_pixels: Annotated[int, typer.Option(help="Width of the restart runs.")] = 32,
    shard_size: Annotated[str, typer.Option(help="Largest shard, as 256MB or 1GiB.")] = "256MB",
    workers: Annotated[int | None, typer.Option(help="Reading threads; default: all.")] = None,
    shuffle: Annotated[bool, typer.Option(help="Mix the samples over the shards.")] = True,
    seed: Annotated[int, typer.Option(help="Of the shuffle.")] = 0,
    network: Annotated[
        bool, typer.Option("--network", help="Write an LMDB to a network file system.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another pack.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Make a skipped file an error.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be packed; writes nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pack images into tar shards or one LMDB file.

    The same command continues a pack that was interrupted.
    """
    choice: Choice = {
        "kind": kind,
        "columns": _columns(column or []),
        "manifest": manifest,
        "fields": tuple(filter(None, fields.split(","))),
        "classes": classes,
        "dedupe": dedupe,
        "limit": limit,
        "workers": workers,
        "keep_bytes": keep_bytes,
        "run_pixels": run_pixels,
        "resize": resize,
        "format": format,
        "quality": quality,
        "orient": orient.value,
        "max_pixels": max_pixels,
        "damaged": damaged.value,
    }
    if dry_run:
        from fastdata.converters.pack import estimate_pack

        plan = estimate_pack(source, **choice)
        if as_json:
            console.print_json(dataclasses.asdict(plan))
        else:
            console.print_rows(console.estimate_rows(plan))
        return
    with console.packing_bar(hidden=as_json) as progress:
        report = fastdata.pack(
            source,
            destination,
            **choice,
            split=split,
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
        console.print_rows(console.pack_rows(report))


def _columns(pairs: list[str]) -> dict[str, str]:
    """Columns by what they are, of texts such as ``image=NAME``."""
    columns = {}
    for pair in pairs:
        role, equals, name = pair.partition("=")
        if not equals or not name or role in columns:
            raise typer.BadParameter(
                f"{pair!r} must be as image=NAME, each once", param_hint="--column"
            )
        columns[role] = name
    return columns


def index(
    path: Annotated[Path, typer.Argument(help="Folder of tar shards, of any tool.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a data set, or other programs' files.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make catalog and manifest of a folder of shards from the shards alone."""
    from fastdata.converters.check.index import index as make_index

    with console.steps_bar(hidden=as_json) as progress:
        report = make_index(path, overwrite=overwrite, progress=progress)
    if as_json:
        console.print_json(dataclasses.asdict(report))
    else:
        console.print_rows(console.index_rows(report))


def verify(
    path: Packed,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rewrite what can be rewritten to the bit.")
    ] = False,
    source: Annotated[
        Path | None, typer.Option(help="The folder that was packed, to repair samples from.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read everything, and report whatever is not as it was written; exit code 1 for damage."""
    from fastdata.converters.check.repair import repair as make_whole
    from fastdata.converters.check.verify import verify as check

    with console.steps_bar(hidden=as_json) as progress:
        fixed = make_whole(path, source, progress=progress).fixed if repair else ()
        report = check(path, progress=progress)
    if as_json:
        console.print_json({**dataclasses.asdict(report), "fixed": fixed})
    else:
        console.print_rows({"repaired": ", ".join(fixed)} if fixed else {})
        console.print_rows(console.verify_rows(report))
    if report.problems:
        raise typer.Exit(1)


def export(
    path: Packed,
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    as_json: Json = False,
) -> None:
    """Write a data set back to a folder of images; `pack` turns it into tars or LMDB."""
    from fastdata.loaders.export.export import export as write_back

    with console.steps_bar(hidden=as_json) as progress:
        report = write_back(path, folder, progress=progress)
    if as_json:
        console.print_json(dataclasses.asdict(report))
    else:
        console.print_rows(console.export_rows(report))


def show(
    path: Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png or .jpg file.")],
    count: Annotated[int, typer.Option(help="Most images.")] = 64,
    columns: Annotated[int, typer.Option(help="Images side by side.")] = 8,
    crops: Annotated[
        int | None, typer.Option(help="Frame what training crops of this size would see.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the choice, and of the crops.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw a contact sheet: images of every class, with their keys."""
    from fastdata.report.sheet import sheet

    crop = None if crops is None else fastdata.RandomResizedCrop(crops)
    drawn = sheet(path, output, count=count, columns=columns, crops=crop, seed=seed)
    if as_json:
        console.print_json(dataclasses.asdict(drawn))
    else:
        console.print_rows(console.sheet_rows(drawn))


def info(
    path: Annotated[Path, typer.Argument(help="A packed data set, or a folder of images.")],
    order: Annotated[
        bool, typer.Option("--order", help="Compare how the orders mix instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Describe a packed data set or a folder."""
    if order:
        from fastdata.loaders.order_quality import mixing

        found = mixing(path)
        if as_json:
            console.print_json([row._asdict() for row in found])
        else:
            console.print_rows(console.mixing_rows(found))
        return
    from fastdata.loaders.describe import describe

    facts = describe(path)
    if as_json:
        console.print_json(facts)
    else:
        console.print_rows(console.dataset_rows(facts))
