"""A forked child leaves the loaders that it inherits alone, and works with its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import cv2
import filling
import jpegs
import numpy as np
import pytest
from filling import Crops
from jpegs import scene
from places import HELPERS

import fastdata as fd
from fastdata.errors import BusyError, OptionError
from fastdata.system.files import Lock
from fastdata.system.threads import Threads

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

_PROGRAM = HELPERS / "fork_main.py"
_LIMIT = 300.0  # seconds; it only ends what hangs


def _packed(root: Path, extension: str) -> Path:
    """40 images that take a while to decode."""
    (root / "images/ant").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    for number in range(40):
        assert cv2.imwrite(str(root / f"images/ant/{number}.{extension}"), pixels)
    fd.pack(root / "images", root / "packed")
    return root / "packed"


@pytest.mark.parametrize(
    ("extension", "kind"),
    [
        *[("jpg", "plain"), ("jpg", "processes"), ("jpg", "dali"), ("png", "threads")],
        pytest.param("png", "plain", marks=pytest.mark.long),
    ],
)
def test_children_end(tmp_path: Path, extension: str, kind: str) -> None:
    """Children forked in mid-epoch exit, drop, close and refuse the loader, and make their own.

    JPEGs are decoded on native threads, PNGs on Python's. The loader's worker processes survive the
    children, and its pass is whole.
    """
    if kind == "dali":
        pytest.importorskip("nvidia.dali")
    packed = _packed(tmp_path, extension)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", _PROGRAM, packed, kind],
        check=False,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
    )

    assert (done.returncode, done.stderr) == (0, "")


def _child(action: Callable[[], None]) -> int:
    """Exit code of a forked child that does something."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            action()
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_the_core_lets_go_in_a_child(native_core: ModuleType, tmp_path: Path) -> None:
    """Pool and jobs of the core can be dropped and used in a child, by whoever holds them."""
    (tmp_path / "a.jpg").write_bytes(jpegs.pillow(scene(400, 300)))
    source = filling.whole_files(native_core, [tmp_path / "a.jpg"])
    crops = Crops([(0, 0, 400, 300)], [(400, 300)])
    threads = filling.pool(native_core, 2)
    out = np.zeros((1, 300, 400, 3), np.uint8)
    held = [
        threads,
        *(filling.begin(threads, source, crops, out, filling.NO_CHECKSUMS) for _ in range(50)),
    ]
    del threads

    def use_and_drop() -> None:
        for call in (held[-1].cancel, lambda: held[-1].wait(1.0), held[-1].failures):
            with pytest.raises(RuntimeError, match="fork"):
                call()
        held.clear()

    assert _child(use_and_drop) == 7
    assert all(job.wait(240) for job in held[1:])


def test_threads_are_not_a_childs(tmp_path: Path) -> None:
    """Work given to a parent's threads is refused in a child, which may end them as it likes."""
    threads = Threads(2, "test")
    assert threads.submit(str, 1).result() == "1"

    def use_and_end() -> None:
        with pytest.raises(OptionError, match="fork"):
            threads.submit(str, 1)
        threads.shutdown()

    assert _child(use_and_end) == 7
    assert threads.submit(str, 2).result() == "2"
    threads.shutdown()


def test_a_lock_stays_its_owners(tmp_path: Path) -> None:
    """A child that leaves the block of a lock neither frees it nor removes its file."""
    path = tmp_path / "x.lock"

    with Lock(path, "x") as lock:
        assert _child(lock.release) == 7

        assert path.exists()
        with pytest.raises(BusyError):
            Lock(path, "x").__enter__()
    assert not path.exists()


@pytest.mark.parametrize("name", ["out", "out.lmdb"])
def test_packing_goes_on_without_a_child(folder: Path, tmp_path: Path, name: str) -> None:
    """A child that a callback forks, and that leaves the pack by an error, takes nothing along."""
    (tmp_path / "expected").mkdir()
    fd.pack(folder, tmp_path / "expected" / name, shard_size=15_000)
    parent = os.getpid()
    children: list[int] = []

    def fork(*_: object) -> None:
        if not children:
            children.append(os.fork())
            if os.getpid() != parent:
                raise ZeroDivisionError

    try:
        fd.pack(folder, tmp_path / name, shard_size=15_000, progress=fork)
    except ZeroDivisionError:
        os._exit(7)
    finally:
        if os.getpid() != parent:
            os._exit(1)

    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
    assert _content(tmp_path / name) == _content(tmp_path / "expected" / name)


def _content(path: Path) -> dict[str, bytes]:
    files = path.iterdir() if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}
