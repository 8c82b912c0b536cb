"""The images of the benchmarks: a user's folder or generated ones, resized and repeated if needed.

Everything is kept in a cache folder whose name contains a hash of the source's file names and
sizes.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

from fastdata import photos
from fastdata.system import resources

_GENERATED = 1000


def source_folder(folder: Path | None, cache: Path, *, quick: bool) -> Path:
    """The folder of class folders to start from; without one, generated images.

    Args:
        folder: The user's.
        cache: Folder for generated images.
        quick: Generate a few small ones.

    Raises:
        SystemExit: The folder has no JPEG in class folders.
    """
    if folder is None:
        images, scale = (24, 0.4) if quick else (_GENERATED, 1.0)
        folder = cache / f"generated-{images}"
        _once(folder, lambda path: photos.generate(path, images=images, classes=4, scale=scale))
    if not any(jpegs(folder)):
        raise SystemExit(f"{folder}: has no class folders with .jpg files; choose another folder")
    return folder


def working_set(source: Path, cache: Path, *, short_side: int | None, images: int) -> Path:
    """A folder with an ``images`` folder of at least ``images`` images.

    Few images are repeated under further names: an epoch should be long, since loaders differ in
    what they lose between epochs, and real ones are thousands of batches long.

    Args:
        source: Folder of class folders.
        cache: Where it is made, or found.
        short_side: Length of the shorter side in pixels that images are first resized to.
        images: The least number; 0 = as many as there are.

    Returns:
        The folder; prepared forms of the images are kept in it too.
    """
    names = "".join(f"{path.relative_to(source)} {path.stat().st_size}\n" for path in jpegs(source))
    mark = hashlib.sha256(names.encode()).hexdigest()[:8]
    name = f"{source.resolve().name}-{mark}"
    if short_side is not None:
        resized = cache / f"{name}-short{short_side}"
        _once(resized, lambda path: _resize(source, path, short_side))
        source, name = resized, resized.name
    work = cache / f"{name}-{images}"
    _once(work / "images", lambda path: _repeat(source, path, images))
    return work


def jpegs(folder: Path) -> Iterator[Path]:
    """JPEG files in class folders, sorted."""
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() in {".jpg", ".jpeg"}:
            yield path


def _once(path: Path, make: Callable[[Path], None]) -> None:
    """Make a folder unless it exists; it gets its name only when it is complete."""
    if path.exists():
        return
    unfinished = path.with_name(path.name + ".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    unfinished.rename(path)


def _resize(source: Path, target: Path, short_side: int) -> None:
    """Write a copy with the given shorter side at JPEG quality 90 (4:2:0); never enlarge."""
    from PIL import Image

    def write(path: Path) -> None:
        with Image.open(path) as image:
            factor = min(1.0, short_side / min(image.size))
            width, height = (max(1, round(side * factor)) for side in image.size)
            small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        encoded = BytesIO()
        small.save(encoded, "JPEG", quality=90)
        copy = target / path.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(encoded.getvalue())

    with ThreadPoolExecutor(resources.cpu_count()) as pool:
        list(pool.map(write, jpegs(source)))


def _repeat(source: Path, target: Path, images: int) -> None:
    """Link each image under as many names as needed; copy where links fail."""
    paths = list(jpegs(source))
    for number in range(max(images, len(paths))):
        path = paths[number % len(paths)]
        copy = target / path.parent.name / f"{path.stem}-{number // len(paths)}.jpg"
        copy.parent.mkdir(exist_ok=True)
        try:
            os.link(path, copy)
        except OSError:  # another file system
            shutil.copyfile(path, copy)
