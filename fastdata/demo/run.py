"""The demo: generate, pack, load, train, measure, report."""

import time
from collections.abc import Callable
from pathlib import Path

from fastdata import report
from fastdata.converters.pack import pack
from fastdata.demo.pictures import generate
from fastdata.demo.results import DemoReport, Loading
from fastdata.demo.show import page
from fastdata.loaders.loader import Loader
from fastdata.plan.crop import RandomResizedCrop
from fastdata.system.files import refuse_link
from fastdata.train import Progress, Recipe, Setup, train

IMAGES = 600
VAL_IMAGES = 200
SIZE = 96  # pixels a side in training; at 224 two cores would need five times as long
EPOCHS = 5
BATCH_SIZE = 16  # small, for 185 steps
LR = 0.01  # at 0.02 and more, accuracy drops at first

_LOADING_SIZE = 224  # the usual size in training on photographs
_LOADING_SECONDS = 2.0
_SHARD_SIZE = "10MB"  # for several shards, as in a large data set
_CEILING_SECONDS = 12.0
_SHEET, _SHEET_SIZE = 28, 160  # crops on the contact sheet, and their side in pixels

Tell = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def demo(
    folder: Path | str = "demo",
    *,
    images: int = IMAGES,
    val_images: int = VAL_IMAGES,
    epochs: int = EPOCHS,
    size: int = SIZE,
    progress: Tell | None = None,
) -> DemoReport:
    """Generate images, pack them twice, load them, train on them, and write a report.

    A second run reuses the images and packed data sets of the first.

    Args:
        folder: Folder for everything; created if it is missing.
        images: Training images to generate.
        val_images: Validation images to generate.
        epochs: Passes over the training images.
        size: Side of the training images in pixels.
        progress: Called with what is being done, how much of it is done, and how much there is.

    Raises:
        DestinationError: ``folder`` holds images made with other settings, or something else.
        MissingExtraError: torchvision or matplotlib is not installed.
    """
    started = time.perf_counter()
    tell = progress or (lambda *_: None)
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    for name in ("photos", "train", "val"):
        refuse_link(root / name)
    generate(root / "photos", images=images, val_images=val_images, tell=tell)

    pictures, val_pictures = root / "photos/train", root / "photos/val"
    tar, lmdb, val = root / "train", root / "train.lmdb", root / "val"
    tell("pack", 0, 1)
    packing = (
        pack(pictures, tar, shard_size=_SHARD_SIZE),
        pack(pictures, lmdb),
    )
    pack(val_pictures, val)

    tell("load", 0, 1)
    loading = (
        _measure_loading("folder", pictures),
        _measure_loading("tar shards", tar),
        _measure_loading("LMDB", lmdb),
    )

    def training(at: Progress) -> None:
        if at.phase == "train":
            tell("train", at.epoch * at.total + at.done, epochs * at.total)
        elif at.phase == "ceiling":
            tell("measure the ceiling", at.done, at.total)

    recipe = Recipe(size=size, epochs=epochs, batch_size=BATCH_SIZE, lr=LR, channels_last=True)
    setup = Setup(ceiling_seconds=_CEILING_SECONDS)
    trained = train(tar, recipe, setup, val=val, progress=training)
    html = root / "report.html"
    done = DemoReport(
        folder=str(root),
        html=str(html),
        images=images,
        val_images=val_images,
        packing=packing,
        loading=loading,
        loading_size=_LOADING_SIZE,
        sheet_size=_SHEET_SIZE,
        training=trained,
        seconds=time.perf_counter() - started,
    )
    report.write_page(html, page(done, _contact_sheet(tar)))
    return done


def _measure_loading(stored: str, path: Path) -> Loading:
    """Speed of a loader alone, after a first pass that fills the page cache."""
    crop = RandomResizedCrop(_LOADING_SIZE, flip=0.5)
    with Loader(path, 32, crop=crop, drop_last=False) as loader:
        for _ in loader:
            pass
        count = 0
        started = time.perf_counter()
        while (seconds := time.perf_counter() - started) < _LOADING_SECONDS:
            count += sum(len(batch.labels) for batch in loader)
    return Loading(stored, count / seconds)


def _contact_sheet(path: Path) -> str:
    """HTML of the first crops of the training run, larger than in training."""
    crop = RandomResizedCrop(_SHEET_SIZE, flip=0.5)
    with Loader(path, _SHEET, crop=crop, drop_last=False) as loader:
        batch = next(iter(loader))
        names = [loader.source.classes[label] for label in batch.labels.tolist()]
        pixels = batch.images.permute(0, 2, 3, 1).numpy()  # (N, H, W, 3) uint8
        captions = list(zip(names, batch.keys, strict=True))
    return report.contact_sheet(pixels, captions)
