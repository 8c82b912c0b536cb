"""torchvision as most people use it: ImageFolder, Pillow images, DataLoader workers."""

from collections.abc import Iterator

from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from peers import Job


def epochs(job: Job) -> Iterator[Iterator[Tensor]]:
    """Epochs of batches, as ``peers`` says."""
    transform = v2.Compose(
        [v2.RandomResizedCrop(job.size), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    )
    loader = DataLoader(
        ImageFolder(job.images, transform),
        job.batch,
        shuffle=True,
        num_workers=job.threads,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        yield (images for images, _ in loader)
