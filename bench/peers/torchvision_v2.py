"""torchvision as its performance notes advise: uint8 tensors, v2 transforms, DataLoader workers."""

from collections.abc import Iterator

from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

from peers import Job


def epochs(job: Job) -> Iterator[Iterator[Tensor]]:
    """Epochs of batches, as ``peers`` says."""
    loader = DataLoader(
        ImageFolder(job.images, transform(job.size), loader=read),
        job.batch,
        shuffle=True,
        num_workers=job.threads,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        yield (images for images, _ in loader)


def transform(size: int) -> v2.Compose:
    """Crop and flip of (3, H, W) uint8 tensors; antialiased."""
    return v2.Compose([v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()])


def read(path: str) -> Tensor:
    """An image, (3, H, W) uint8."""
    image: Tensor = decode_image(read_file(path), ImageReadMode.RGB)
    return image
