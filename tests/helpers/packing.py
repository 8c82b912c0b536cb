"""What the tests of ``pack`` share."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.converters import stages
from fastdata.converters.images.coding import Coding
from fastdata.converters.sources.listing import Listing
from fastdata.converters.stages import Loaded
from fastdata.dataset import manifest
from fastdata.dataset.lmdb.file import open_file, read_manifest
from fastdata.dataset.manifest import Skipped

KINDS = pytest.mark.parametrize("name", ["shards", "one.lmdb"])


def picture(number: int, kind: str = "JPEG") -> bytes:
    """An image of (20 + number) x 10 pixels."""
    buffer = io.BytesIO()
    Image.new("RGB", (20 + number, 10), (number * 7 % 256, 0, 0)).save(buffer, kind)
    return buffer.getvalue()


def twenty(root: Path) -> Path:
    """20 images of noise, 2 to 3 kB each, in two classes, and a file that is none."""
    for number in range(20):
        path = root / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 256, (32, 40 + number, 3), np.uint8)
        Image.fromarray(noise).save(path)
    (root / "a/bad.jpg").write_bytes(b"no image")
    return root


def content(path: Path) -> dict[str, bytes]:
    """Bytes of every file of a data set."""
    files = path.iterdir() if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


def load(path: Path) -> manifest.Manifest:
    """The manifest of either kind."""
    return manifest.load(path) if path.is_dir() else read_manifest(open_file(path))


def originals(source: Path) -> dict[str, bytes]:
    """Content of every source file by its relative name."""
    return {
        os.path.relpath(os.path.join(folder, name), source): Path(folder, name).read_bytes()
        for folder, _, files in os.walk(source)
        for name in files
    }


def interrupted_after(
    count: int, error: BaseException | None = None
) -> Callable[[Listing, Iterator[int], int, Coding], Iterator[tuple[int, Loaded | Skipped]]]:
    """A reader that fails after so many files."""

    def broken(
        listing: Listing, order: Iterator[int], workers: int, coding: Coding
    ) -> Iterator[tuple[int, Loaded | Skipped]]:
        for done, entry in enumerate(stages.read_all(listing, order, workers, coding)):
            if done == count:
                raise error or KeyboardInterrupt
            yield entry

    return broken
