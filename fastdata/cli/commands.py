"""All commands. Each is thin: it parses, calls the library, and prints."""

import os
import sys
import warnings
from typing import Annotated

import typer

import fastdata
from fastdata.cli import bench, console, data, doctor, training
from fastdata.errors import CorruptError, FastdataError

app = typer.Typer(
    name="fastdata",
    help="Pack image folders, feed PyTorch from them, and measure what comes of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(data.pack)
app.command()(data.verify)
app.command()(data.index)
app.command()(data.export)
app.command()(data.show)
app.command()(data.info)
app.command()(training.train)
app.command()(training.demo)
app.command()(doctor.doctor)
app.add_typer(bench.app, name="bench")


def run() -> int:
    """Run the command that the arguments of the process name; return its exit code."""
    # GNU OpenMP's threads spin at barriers, which on the CPU takes the cores from decoding
    # and from other programs. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    warnings.showwarning = console.show_warning
    try:
        app()  # usage errors end here with 2, SIGINT with 130
    except FastdataError as error:
        console.print_error(str(error))
        return 1 if isinstance(error, CorruptError) else 2
    except OSError as error:  # of a path that the user named
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        console.print_error(f"{where}{error.strerror or error}")
        return 2
    finally:
        sys.stdout.flush()  # while there is somebody to tell that it cannot be written
    return 0


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
    """Options of every command."""
