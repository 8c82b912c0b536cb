"""The demo's pictures, generated once."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from fastdata import photos
from fastdata.errors import DestinationError
from fastdata.files import write_atomically
from fastdata.json_fields import read_json

CLASSES = 10

_NOTE = "made-by-demo.json"


def generate(
    folder: Path, *, images: int, val_images: int, tell: Callable[[str, int, int], None]
) -> None:
    """Make pictures for training and validation, unless they are there.

    The folder gets its name when it is whole, with a note inside of how it was made.
    """
    note = {"images": images, "val_images": val_images, "classes": CLASSES}
    if folder.exists():
        _check_note(folder, note)
        return
    unfinished = folder.with_name(folder.name + ".tmp")
    if unfinished.exists():  # of a demo that was stopped
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    for part, count, seed in (("train", images, 0), ("val", val_images, 1)):
        progress = partial(tell, f"generate {part}")
        photos.generate(
            unfinished / part, images=count, classes=CLASSES, seed=seed, progress=progress
        )
    write_atomically(unfinished / _NOTE, json.dumps(note).encode())
    unfinished.rename(folder)


def _check_note(folder: Path, note: dict[str, int]) -> None:
    found = None
    with suppress(OSError, DestinationError):
        found = read_json((folder / _NOTE).read_bytes(), str(folder), DestinationError, "")
    if found != note:
        raise DestinationError(
            f"{folder} holds something other than this demo's pictures; "
            "remove it, or choose another folder for the demo"
        )
