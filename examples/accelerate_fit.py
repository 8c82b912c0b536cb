"""Hugging Face Accelerate on several processes, and on from one of its checkpoints.

    accelerate launch examples/accelerate_fit.py train/ --steps 500
    accelerate launch examples/accelerate_fit.py train/ --steps 900 --resume checkpoint/

The loader does not go through ``prepare``: it shares samples out over the ranks and puts them on
the device by itself. Accelerate saves and restores it like any other object with a state.
"""

import argparse

import torch
import torchvision
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

import fastdata as fd


class Steps:
    """How many steps were done, as Accelerate keeps it."""

    def __init__(self) -> None:
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        """For a checkpoint."""
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """From a checkpoint."""
        self.done = state["done"]


def main() -> None:
    """Train for some steps."""
    args = parse()
    accelerator = Accelerator(cpu=args.cpu)

    # behind Accelerator(), which starts torch.distributed
    crop, device = fd.RandomResizedCrop(args.size, flip=0.5), accelerator.device
    loader = fd.Loader(args.data, args.batch_size, crop=crop, device=device)
    model = torchvision.models.get_model(args.model, num_classes=len(loader.source.classes))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = Steps()
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(loader, steps)
    if args.resume is not None:
        accelerator.load_state(args.resume)

    while steps.done < args.steps:
        for images, labels in loader:  # a new order in each epoch
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            steps.done += 1
            if steps.done % args.save_every == 0 or steps.done == args.steps:
                accelerator.save_state(args.checkpoint)
                accelerator.print(f"step {steps.done}: {args.checkpoint}")
            if steps.done == args.steps:
                break
    accelerator.end_training()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="what fastdata packed, or a folder of images")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64, help="samples a rank and step")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--checkpoint", default="checkpoint", help="a folder")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--resume", help="a checkpoint to go on from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
