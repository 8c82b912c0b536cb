"""Train with Lightning, one process per device, and resume from its checkpoints.

    python examples/lightning_fit.py train/ --steps 500
    python examples/lightning_fit.py train/ --steps 900 --resume checkpoints/last.ckpt

Lightning uses the loader as it is, without a sampler of its own, and saves its state in every
checkpoint, so a run resumes mid-epoch with the next batch.

- ``limit_train_batches`` ends every pass early, so each epoch would be the first again. Use
  ``sampling=fd.Sampling(draws=...)`` for shorter epochs, or call
  ``self.trainer.train_dataloader.set_epoch(self.current_epoch)`` in ``on_train_epoch_start``.
- ``precision="bf16-true"`` and ``"16-true"`` do not convert a ``Batch``: give the loader the same
  ``dtype``. ``"bf16-mixed"`` and ``"16-mixed"`` need nothing.
- For exact evaluation on several ranks, make a loader with ``shuffle=False`` and count only valid
  places::

    right = (self(batch.images).argmax(1) == batch.labels)[batch.valid]
    self.log("right", right.sum().float(), reduce_fx="sum", sync_dist=True, on_epoch=True)
    self.log("counted", batch.valid.sum().float(), reduce_fx="sum", sync_dist=True, on_epoch=True)
"""

import argparse

import lightning
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

import fastdata as fd


class Images(lightning.LightningDataModule):
    """The training data."""

    def __init__(self, path: str, batch_size: int, size: int) -> None:
        super().__init__()
        self.path, self.batch_size, self.size = path, batch_size, size
        self.classes = fd.open(path).source.classes

    def train_dataloader(self) -> fd.Loader:
        """Make the loader here, where the process knows its rank and its device."""
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
        """Images are normalised and on the device."""
        images, labels = batch
        loss = cross_entropy(self.model(images), labels)
        self.log("loss", loss, prog_bar=True, batch_size=len(images))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD with momentum."""
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="packed data set or folder of images")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder")
    parser.add_argument("--resume", help="checkpoint to resume from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
