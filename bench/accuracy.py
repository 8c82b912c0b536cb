"""Train on fastdata and on ImageFolder with torchvision's transforms, and compare the accuracy.

Both sides train the same model with the same steps on the same generated images of ten classes,
once for each seed; only the loader differs:

- fastdata: packed images, `fd.Loader`, uint8 crops that are normalised after the copy;
- torchvision: `ImageFolder`, `RandomResizedCrop`, `RandomHorizontalFlip`, `ToDtype` and
  `Normalize` on Pillow images, `DataLoader` with shuffling.

    python bench/accuracy.py work/                 # ten minutes on one core
    python bench/accuracy.py work/ --quick         # seconds: shows only that it runs

Images and packed data sets are cached in the folder. Both models are tested on torchvision's centre
crops. The last line is JSON. Fastdata costs no accuracy if the means differ by less than the seeds
do.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from measure import machine, versions
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import v2

import fastdata as fd
from fastdata import photos
from fastdata.train import Recipe, TrainStep
from fastdata.train.device import seeded
from fastdata.train.models import build
from fastdata.train.optimizer import rates

_CPU = torch.device("cpu")
_CLASSES = 10

Pair = tuple[torch.Tensor, torch.Tensor]


def main() -> None:
    """Train both sides with each seed in turn, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder for images and packed data sets")
    parser.add_argument("--images", type=int, default=1000, help="training images to generate")
    parser.add_argument("--val-images", type=int, default=500, help="validation images to generate")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the images")
    parser.add_argument("--size", type=int, default=64, help="side of the crops in pixels")
    parser.add_argument("--batch-size", type=int, default=32, help="images per batch")
    parser.add_argument("--lr", type=float, default=0.02, help="highest learning rate")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of each side")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and decoder")
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")
    given = parser.parse_args()
    if given.quick:
        given.images, given.val_images, given.epochs, given.seeds = 24, 20, 1, 2
        given.size, given.batch_size = 32, 8
    torch.set_num_threads(given.threads)
    recipe = Recipe(
        size=given.size, epochs=given.epochs, batch_size=given.batch_size, lr=given.lr,
        channels_last=True,
    )  # fmt: skip
    pictures = _pictures(given.folder, given.images, given.val_images)

    accuracies: dict[str, list[float]] = {"fastdata": [], "torchvision": []}
    for seed in range(given.seeds):
        for name, all_found in accuracies.items():
            start = time.perf_counter()
            accuracy = train(pictures, name, recipe, seed, given.threads)
            all_found.append(accuracy)
            seconds = time.perf_counter() - start
            print(f"seed {seed}  {name:12} {accuracy:.1%} after {seconds:.0f} s", flush=True)

    for name, found in accuracies.items():
        print(f"{name:12} mean {statistics.mean(found):.1%}, spread {max(found) - min(found):.1%}")
    difference = statistics.mean(accuracies["fastdata"]) - statistics.mean(
        accuracies["torchvision"]
    )
    print(f"fastdata - torchvision: {difference:+.1%}")
    facts = {"machine": machine(), "versions": versions(["torch", "torchvision"])}
    chosen = {name: vars(given)[name] for name in ("images", "val_images", "threads")}
    switches = {"size": recipe.size, "epochs": recipe.epochs, "batch_size": recipe.batch_size}
    print(json.dumps({"accuracies": accuracies, **chosen, **switches, "lr": given.lr, **facts}))


def train(pictures: Path, name: str, recipe: Recipe, seed: int, threads: int) -> float:
    """Validation accuracy after training on one side's batches."""
    with seeded(seed, _CPU):
        model = build("resnet18", classes=_CLASSES, size=recipe.size)
        step = TrainStep(recipe, model, _CPU)
        folder = pictures / "train"
        steps = recipe.epochs * (len(list(folder.glob("*/*"))) // recipe.batch_size)
        rate = rates(recipe, steps=steps, peak=recipe.peak_lr())
        if name == "fastdata":
            batches = _fastdata(pictures / "packed", recipe, seed, threads)
        else:
            batches = _torchvision(folder, recipe)
        step.module.train()
        for number, (images, labels) in enumerate(batches):
            step(images, labels, rate(number))
        assert number + 1 == steps
        return _accuracy(step, pictures / "val", recipe)


def _fastdata(path: Path, recipe: Recipe, seed: int, threads: int) -> Iterator[Pair]:
    crop = fd.RandomResizedCrop(recipe.size, flip=0.5)
    with fd.Loader(
        path, recipe.batch_size, crop=crop, seed=seed, device="cpu", threads=threads
    ) as loader:
        for _ in range(recipe.epochs):
            for batch in loader:
                yield batch.images, batch.labels


def _torchvision(path: Path, recipe: Recipe) -> Iterator[Pair]:
    crop = [v2.RandomResizedCrop(recipe.size, antialias=True), v2.RandomHorizontalFlip()]
    data = datasets.ImageFolder(os.fspath(path), _floats(*crop))
    loader = DataLoader(data, recipe.batch_size, shuffle=True, drop_last=True)
    for _ in range(recipe.epochs):
        yield from loader


@torch.no_grad()
def _accuracy(step: TrainStep, path: Path, recipe: Recipe) -> float:
    crop = [v2.Resize(round(recipe.size * 256 / 224)), v2.CenterCrop(recipe.size)]
    data = datasets.ImageFolder(os.fspath(path), _floats(*crop))
    step.module.eval()
    right = 0
    for images, labels in DataLoader(data, recipe.batch_size):
        right += int((step.predict(images).argmax(1) == labels).sum())
    return right / len(data)


def _floats(*crop: v2.Transform) -> v2.Transform:
    """A PIL image, cropped, as normalised floats."""
    scaled = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    return v2.Compose([*crop, *scaled, v2.Normalize(fd.IMAGENET.mean, fd.IMAGENET.std)])


def _pictures(folder: Path, images: int, val_images: int) -> Path:
    """The folder of images and packed data sets of this size, made if it is missing."""
    root = folder / f"accuracy-{images}-{val_images}"
    if not root.exists():
        making = root.with_name(root.name + ".tmp")
        for part, count, seed in (("train", images, 0), ("val", val_images, 1)):
            photos.generate(making / part, images=count, classes=_CLASSES, seed=seed, scale=0.25)
        fd.pack(making / "train", making / "packed")
        making.rename(root)
    return root


if __name__ == "__main__":
    main()
