"""Lightning, on as many processes as there are devices, and on from one of its checkpoints.

    python examples/lightning_fit.py train/ --steps 500
    python examples/lightning_fit.py train/ --steps 900 --resume checkpoints/last.ckpt

Lightning takes a loader as it is: it puts no sampler of its own into it, and keeps its state in
every checkpoint, so that a run goes on in the middle of an epoch with the next batch.
"""

import argparse

import lightning
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

import fastdata as fd


class Images(lightning.LightningDataModule):
    """The data."""

    def __init__(self, path: str, batch_size: int, size: int) -> None:
        super().__init__()
        self.path, self.batch_size, self.size = path, batch_size, size
        self.classes = fd.open(path).source.classes

    def train_dataloader(self) -> fd.Loader:
        """The loader is made here, where the process knows its rank and its device."""
        assert self.trainer is not None
        crop = fd.RandomResizedCrop(self.size, flip=0.5)
        device = self.trainer.strategy.root_device
        return fd.Loader(self.path, self.batch_size, crop=crop, device=device)


class Classifier(lightning.LightningModule):
    """The model and its step."""

    def __init__(self, model: str, classes: int) -> None:
        super().__init__()
        network = torchvision.models.get_model(model, num_classes=classes)
        self.model = network.to(memory_format=torch.channels_last)

    def training_step(self, batch: fd.Batch) -> torch.Tensor:
        """Images come normalised and on the device."""
        images, labels = batch
        loss = cross_entropy(self.model(images), labels)
        self.log("loss", loss, prog_bar=True, batch_size=len(images))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main() -> None:
    """Train for some steps."""
    args = parse()
    data = Images(args.data, args.batch_size, args.size)
    trainer = lightning.Trainer(
        max_steps=args.steps,
        devices=args.devices,
        accelerator=args.accelerator,
        callbacks=[ModelCheckpoint(args.checkpoints, save_last=True, every_n_train_steps=100)],
        logger=False,
    )
    trainer.fit(Classifier(args.model, len(data.classes)), data, ckpt_path=args.resume)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="what fastdata packed, or a folder of images")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64, help="samples a rank and step")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder")
    parser.add_argument("--resume", help="a checkpoint to go on from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
