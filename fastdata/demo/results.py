"""Figures of the demo: plain frozen data, JSON through ``dataclasses.asdict``."""

from dataclasses import dataclass

from fastdata.converters.pack import PackReport
from fastdata.train import TrainReport


@dataclass(frozen=True)
class Loading:
    """Loading speed from one kind of storage.

    Attributes:
        stored: ``"folder"``, ``"tar shards"`` or ``"LMDB"``.
        images_per_second: Speed of reading, decoding and cropping, with a warm page cache.
    """

    stored: str
    images_per_second: float


@dataclass(frozen=True)
class DemoReport:
    """A finished demo.

    Attributes:
        folder: The folder of all its files.
        html: The report for a browser.
        images: Generated training images.
        val_images: Generated validation images.
        packing: The training images as tar shards and as LMDB.
        loading: Speeds from folder, tar shards and LMDB.
        loading_size: Side of the random crops in ``loading``.
        sheet_size: Side of the crops on the contact sheet.
        training: The reference run on the tar shards.
        seconds: Total time.
    """

    folder: str
    html: str
    images: int
    val_images: int
    packing: tuple[PackReport, ...]
    loading: tuple[Loading, ...]
    loading_size: int
    sheet_size: int
    training: TrainReport
    seconds: float
