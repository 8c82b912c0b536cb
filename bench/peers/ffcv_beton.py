"""FFCV: its own file of JPEGs at its default quality 90, or of raw pixels, cached by the system.

Its writer encodes anew, with chroma subsampling, so its file may be smaller than the images were.
"""

from collections.abc import Iterator
from typing import Any

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor
from ffcv.writer import DatasetWriter
from torchvision.datasets import ImageFolder

from peers import Job


def prepare(job: Job) -> None:
    """Write the file."""
    mode = "raw" if job.name == "ffcv-raw" else "jpg"
    fields = {"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()}
    writer = DatasetWriter(str(job.form / "images.beton"), fields, num_workers=job.threads)
    writer.from_indexed_dataset(ImageFolder(job.images))


def epochs(job: Job) -> Iterator[Iterator[Any]]:
    """Epochs of batches, as ``peers`` says."""
    image = [
        RandomResizedCropRGBImageDecoder((job.size, job.size)),
        RandomHorizontalFlip(),
        ToTensor(),
    ]
    loader = Loader(
        str(job.form / "images.beton"),
        batch_size=job.batch,
        num_workers=job.threads,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    while True:
        yield (images for images, _ in loader)
