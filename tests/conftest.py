"""Fixtures for every test file."""

import gc
import os
import signal
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
from packing import picture

from fastdata import native
from fastdata.converters.pack import pack

# as the command line does, for training on cores that other programs want too
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# a shell starts background jobs with SIGINT ignored, which the tests' own processes would inherit
signal.signal(signal.SIGINT, signal.default_int_handler)

_CLASSES = ("ant", "bee", "cat")


def pytest_collection_finish() -> None:
    """Keep what was imported out of garbage collections: torch alone adds half a second to each."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let everything be collected at the end: bindings complain of what is left."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def native_core() -> ModuleType:
    """The native core; tests that need it skip without it, or fail where it is required (CI)."""
    module = native.load()
    if module is None:
        reason = "the native core was not built: `pip install -v -e .` shows why"
        if os.environ.get("FASTDATA_REQUIRE_CORE"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return module


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 JPEGs of different sizes in 3 classes; image i is called i, of class i % 3, gray 10 i."""
    root = tmp_path_factory.mktemp("images")
    for number in range(23):
        path = root / _CLASSES[number % 3] / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        pixels = np.full((40 + number, 60 - number, 3), 10 * number, np.uint8)
        assert cv2.imwrite(str(path), pixels, [cv2.IMWRITE_JPEG_QUALITY, 98])
    return root


@pytest.fixture(scope="session")
def shards(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images as several tar shards."""
    path = tmp_path_factory.mktemp("packed") / "shards"
    assert pack(folder, path, shard_size=15_000).shards > 2
    return path


@pytest.fixture(scope="session")
def lmdb_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images as one LMDB file."""
    path = tmp_path_factory.mktemp("packed") / "images.lmdb"
    pack(folder, path)
    return path


@pytest.fixture(params=["folder", "shards", "lmdb_file"])
def dataset(request: pytest.FixtureRequest) -> Path:
    """The same images in each of the three ways to store them."""
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Twelve images in three classes: two formats, dots, unicode, names that are no text."""
    root = tmp_path / "source"
    names = [
        *("ant/a.jpg", "ant/a.b.jpg", "ant/a_b.jpg", "ant/deep/a.jpg", "bee/x.jpg", "bee/x.png"),
        *("bee/\u6d77.jpg", "bee/lie.jpg", "cat/1.jpg", "cat/2", "cat/" + "long" * 40 + ".jpg"),
    ]
    for number, name in enumerate([*map(os.fsencode, names), b"cat/\xff\xfe.jpg"]):
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        png = name.endswith(b".png") or b"lie" in name
        with open(path, "wb") as file:
            file.write(picture(number, "PNG" if png else "JPEG"))
    return root
