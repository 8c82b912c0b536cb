"""How many of our modules and functions an act passes through: packing, a loader, its first batch.

    python tools/hands.py [--functions]

Functions of the package that any thread calls count; module bodies do not, as imports come first.
CONTRIBUTING.md has the bars.
"""

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import cv2
import numpy as np

import fastdata as fd

_ROOT = os.path.realpath(Path(fd.__file__).parent)
_HOUSE = (_ROOT, *(os.path.realpath(Path(_ROOT, name)) for name in ("converters", "loaders")))


def entered(act: Callable[[], object]) -> Counter[tuple[str, str]]:
    """Calls of each (module, function) of the package while ``act`` runs."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        path = os.path.realpath(code.co_filename)
        if event == "call" and path.startswith(_HOUSE) and code.co_name != "<module>":
            calls[os.path.relpath(path, Path(_ROOT).parent), code.co_qualname] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return calls


def _write_images(folder: Path) -> None:
    """Write 12 small JPEGs of two classes."""
    for number in range(12):
        path = folder / f"class-{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (80, 96, 3), np.uint8)
        cv2.imwrite(str(path), pixels)


def main() -> None:
    """Print a line for each act."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--functions", action="store_true", help="list the functions, too")
    show = parser.parse_args().functions
    with tempfile.TemporaryDirectory() as name:
        images = Path(name, "images")
        _write_images(images)
        _acts(images, Path(name, "first"), lambda _, act: act())  # imports what is used
        _acts(images, Path(name, "second"), lambda title, act: _report(title, act, show=show))


def _acts(images: Path, packed: Path, run: Callable[[str, Callable[[], object]], object]) -> None:
    """Pass each act to ``run``."""
    loaders: list[fd.Loader] = []
    run("pack 12 images", lambda: fd.pack(images, packed))
    run("construct a Loader", lambda: loaders.append(fd.Loader(packed, 4)))
    run("its first batch", lambda: next(iter(loaders[0])))
    loaders[0].close()


def _report(title: str, act: Callable[[], object], *, show: bool) -> None:
    calls = entered(act)
    modules = sorted({module for module, _ in calls})
    print(f"{title}: {len(modules)} modules, {len(calls)} functions")
    for module in modules if show else ():
        print(f"  {module}: {', '.join(sorted(name for at, name in calls if at == module))}")


if __name__ == "__main__":
    main()
