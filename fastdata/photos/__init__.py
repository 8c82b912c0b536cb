"""Generated images that compress and decode like photographs, for benchmarks, demo and tests.

Scenes of overlapping textured shapes ("dead leaves") with the spectrum, edges and colours of
natural images, stored with the sizes and JPEG settings of ImageNet. A class is a kind of shape
with a texture and a leaning to some colours; strays of other classes, size, light, focus and
palette vary within it, so that a network has to look at shapes to tell classes apart.
`docs/photos.md` compares them with photographs.

A picture depends on (seed, index, classes, scale) alone: not on threads, and not on the processor,
since it is painted in integers. Its bytes are the same with the same version of OpenCV; another
version may round or compress otherwise.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fastdata.errors import DestinationError, OptionError
from fastdata.photos import camera, scene
from fastdata.photos.crowd import Look
from fastdata.photos.dice import TURN, Dice
from fastdata.photos.motifs import BY_TONE, SHAPES, TEXTURES
from fastdata.plan import rng
from fastdata.system import resources
from fastdata.system.files import Folder
from fastdata.system.threads import Threads, check_count

__all__ = ["MAX_CLASSES", "Photo", "class_names", "generate", "photo"]

MAX_CLASSES = len(SHAPES) * len(TEXTURES)
_MAX_SCALE = 4.0  # 5,200 pixels a side; painting larger ones would need gigabytes


class Photo(NamedTuple):
    """One image: its JPEG file, and the index of its class in ``class_names``."""

    data: bytes
    label: int


def class_names(classes: int) -> tuple[str, ...]:
    """Names in the order of labels, which is sorted, as readers of class folders number them."""
    return tuple(name for name, _ in _looks(classes))


def photo(index: int, *, classes: int = 10, seed: int = 0, scale: float = 1.0) -> Photo:
    """Generate image number ``index`` of a set; its label is index % classes.

    Args:
        index: From 0.
        classes: From 1 to 100.
        seed: Random seed of the set.
        scale: Factor on width and height, above 0 and at most 4; 1 is the sizes of ImageNet.

    Raises:
        OptionError: An argument is out of range.
    """
    if index < 0:
        raise OptionError(f"index must be 0 or more, not {index}")
    looks = _looks(classes)
    dice = Dice(rng.key("photo", seed, index))
    shot = camera.aim(dice, _checked_scale(scale))
    label = index % classes
    picture = scene.paint(dice, looks[label][1], shot.optics, shot.height, shot.width)
    return Photo(camera.develop(picture, shot), label)


def generate(
    root: Path | str,
    *,
    images: int,
    classes: int = 10,
    seed: int = 0,
    scale: float = 1.0,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write images as root/<class name>/<index>.jpg, classes in turn.

    Args:
        root: A new or empty folder.
        images: Number of images, at least one for each class.
        classes: From 1 to 100.
        seed: Random seed of the set.
        scale: Factor on width and height, above 0 and at most 4; 1 is the sizes of ImageNet.
        workers: Threads; None is one per core. The files do not depend on it.
        progress: Called after each file with (files written, images), from one thread at a time.

    Raises:
        OptionError: An argument is out of range.
        DestinationError: ``root`` is a file, or a folder that is not empty.
    """
    root = Path(root)
    names = class_names(classes)
    _checked_scale(scale)
    threads = resources.cpu_count() if workers is None else workers
    if images < classes:
        raise OptionError(f"images must be {classes} or more, one for each class, not {images}")
    check_count("workers", threads)
    _make_folders(root, names)

    def write(index: int) -> None:
        data, label = photo(index, classes=classes, seed=seed, scale=scale)
        with Folder(root / names[label]) as folder:
            folder.write(f"{index:06}.jpg", data)

    _share_out(iter(range(images)), images, write, threads, progress)


def _looks(classes: int) -> list[tuple[str, Look]]:
    """Name and look of each class, sorted by name.

    The first ten classes share neither shape nor texture; later ones are new combinations.
    """
    if not 1 <= classes <= MAX_CLASSES:
        raise OptionError(f"classes must be from 1 to {MAX_CLASSES}, not {classes}")
    looks = []
    for number in range(classes):
        shape = number % len(SHAPES)
        texture = (number + number // len(SHAPES)) % len(TEXTURES)
        angle = 307 * number % TURN
        tone = (BY_TONE.index(SHAPES[shape]) + 0.5) / len(SHAPES)
        looks.append((f"{TEXTURES[texture]}-{SHAPES[shape]}", Look(shape, texture, angle, tone)))
    return sorted(looks)


def _checked_scale(scale: float) -> float:
    if not 0 < scale <= _MAX_SCALE:
        raise OptionError(f"scale must be above 0 and at most {_MAX_SCALE:g}, not {scale}")
    return scale


def _make_folders(root: Path, names: tuple[str, ...]) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DestinationError(f"{root}: photos need a new or an empty folder; choose another one")
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)


def _share_out(
    indices: Iterator[int],
    images: int,
    write: Callable[[int], None],
    threads: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Call ``write`` for each index in threads; the first error stops all and is raised."""
    stop = threading.Event()
    lock = threading.Lock()
    done = 0

    def work() -> None:
        nonlocal done
        try:
            while not stop.is_set():
                with lock:
                    index = next(indices, None)
                if index is None:
                    return
                write(index)
                with lock:
                    done += 1
                    if progress is not None:
                        progress(done, images)
        except BaseException:
            stop.set()
            raise

    with Threads(threads, "fastdata-photos") as pool:
        futures = [pool.submit(work) for _ in range(threads)]
        try:
            for future in futures:
                future.result()
        finally:
            stop.set()
