"""All commands: each parses its arguments, calls the library, and prints."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import fastdata
from fastdata.cli import bench, console, data, doctor, training
from fastdata.errors import CorruptError, FastdataError

_ClickError: type[Exception] = typer.BadParameter.mro()[2]  # ClickException; its home varies


class _Commands(TyperGroup):
    """The group of all commands, which escapes what users typed in usage errors."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the options before the command."""
        with _escaped_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the command's arguments and run it."""
        with _escaped_errors():
            return super().invoke(ctx)


@contextmanager
def _escaped_errors() -> Iterator[None]:
    try:
        yield
    except _ClickError as error:
        text = console.escaped(error.format_message())  # type: ignore[attr-defined]
        error.format_message = lambda: text  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    name="fastdata",
    cls=_Commands,
    help="Pack image folders, feed them to PyTorch, and measure training speed.",
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
    # Waiting threads of GNU OpenMP spin, which takes cores from decoding and other programs.
    # torch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    warnings.showwarning = console.show_warning
    try:
        app()  # usage errors end here with 2, SIGINT with 130
    except FastdataError as error:
        console.print_error(str(error))
        return 1 if isinstance(error, CorruptError) else 2
    except OSError as error:  # about a path from the command line
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        console.print_error(f"{where}{error.strerror or error}")
        return 2
    finally:
        sys.stdout.flush()  # while a failure can still be reported
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
    """Handle the options before the command."""
