"""The demo's images, generated once and then cached."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from fastdata import photos
from fastdata.errors import DestinationError
from fastdata.system.files import write_atomically
from fastdata.system.untrusted import read_json, read_regular

CLASSES = 10

_NOTE = "made-by-demo.json"


def generate(
    folder: Path, *, images: int, val_images: int, tell: Callable[[str, int, int], None]
) -> None:
    """Generate images for training and validation, unless an earlier demo did.

    The folder is renamed to its final name when it is complete. A note inside records how it was
    made; a folder without the note is not ours.

    Raises:
        DestinationError: ``folder`` holds something else.
    """
    note = {"images": images, "val_images": val_images, "classes": CLASSES}
    if folder.exists():
        _check_note(folder, note)
        return
    unfinished = folder.with_name(folder.name + ".tmp")
    with suppress(OSError):
        unfinished.rmdir()  # left by a demo that was stopped before it wrote the note
    if os.path.lexists(unfinished):
        _check_note(unfinished, note)
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    write_atomically(unfinished / _NOTE, json.dumps(note).encode())
    for part, count, seed in (("train", images, 0), ("val", val_images, 1)):
        progress = partial(tell, f"generate {part}")
        photos.generate(
            unfinished / part, images=count, classes=CLASSES, seed=seed, progress=progress
        )
    unfinished.rename(folder)


def _check_note(folder: Path, note: dict[str, int]) -> None:
    found = None
    with suppress(OSError, DestinationError):
        found = read_json(read_regular(folder / _NOTE), str(folder), DestinationError, "")
    if found != note:
        raise DestinationError(
            f"{folder} holds something other than this demo's images; "
            "remove it, or choose another folder for the demo"
        )
