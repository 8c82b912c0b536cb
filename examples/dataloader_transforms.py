"""Train with your own transforms in worker processes, and resume mid-epoch.

    python examples/dataloader_transforms.py train/ --steps 500
    python examples/dataloader_transforms.py train/ --steps 900 --resume checkpoint.pt

``fd.open`` shards samples across workers in an order that depends on seed and epoch; torchdata's
StatefulDataLoader saves each worker's position. Random numbers are seeded by (seed, epoch, sample),
so a stopped and resumed run ends with the same weights as an uninterrupted one.
"""

import argparse
import os

import torch
import torchvision
from torch.nn.functional import cross_entropy
from torch.utils.data import default_collate
from torchdata.stateful_dataloader import StatefulDataLoader
from torchvision.transforms import v2

import fastdata as fd


class Transform:
    """torchvision's transforms, with random numbers that do not depend on the worker."""

    def __init__(self, size: int, seed: int) -> None:
        self.seed = seed
        # in shared memory, so that persistent workers see it change
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.stages = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomResizedCrop(size, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.TrivialAugmentWide(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )

    def __call__(self, sample: fd.Sample) -> tuple[torch.Tensor, int]:
        """A normalised image, (3, size, size), and its label."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(hash((self.seed, int(self.epoch), sample.id)))
            return self.stages(sample.image), sample.label


def main() -> None:
    """Train for some steps."""
    args = parse()
    torch.manual_seed(args.seed)
    transform = Transform(args.size, args.seed)
    data = fd.open(
        args.data,
        shuffle=True,
        seed=args.seed,
        transform=transform,
        batch_size=args.batch_size,
    )
    loader = StatefulDataLoader(
        data,
        batch_size=None,  # workers make whole batches, in the same order for any number of workers
        num_workers=args.workers,
        collate_fn=default_collate,
    )
    model = torchvision.models.get_model(args.model, num_classes=len(data.source.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    epoch = step = 0
    if args.resume is not None:
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        epoch, step = state["epoch"], state["step"]

    while step < args.steps:
        data.set_epoch(epoch)
        transform.epoch.fill_(epoch)
        for images, labels in loader:
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.save_every == 0 or step == args.steps:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "epoch": epoch,
                    "step": step,
                }
                torch.save(state, f"{args.checkpoint}.tmp")
                os.replace(f"{args.checkpoint}.tmp", args.checkpoint)
                print(f"step {step}: {args.checkpoint}")
            if step == args.steps:
                break
        epoch += 1


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="packed data set or folder of images")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--resume", help="checkpoint to resume from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
