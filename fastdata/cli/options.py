"""Options that several commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Threads = Annotated[int | None, typer.Option(help="Decoding threads; default: all but 1 or 2.")]
