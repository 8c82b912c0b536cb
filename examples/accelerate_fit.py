"""Train with Hugging Face Accelerate on several processes, and resume from its checkpoints.

    accelerate launch examples/accelerate_fit.py train/ --steps 500
    accelerate launch examples/accelerate_fit.py train/ --steps 900 --resume checkpoint/

Do not pass the loader to ``prepare`` (it would come back unchanged): it shards samples across ranks
and copies them to the device itself. Accelerate saves and restores it like any object with a state;
``skip_first_batches`` is neither needed nor possible.

- ``accelerator.accumulate`` does not see the end of the loader's epochs: leftover batches
  accumulate into the next one.
- ``gather_for_metrics`` does not know padded places: gather ``batch.valid`` too, and count only
  those.
- A prepared ``DataLoader`` over ``fd.open(...)`` would be sharded twice, and most samples would
  never come. That is an error; leave the ``DataLoader`` unprepared, or use
  ``fd.open(..., ranks=fd.Ranks(0, 1))``, after which Accelerate's main process reads all samples,
  sends them to the others and fills the last batch with samples from the beginning. The ``Trainer``
  of transformers prepares its loaders this way.
"""

import argparse

import torch
import torchvision
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

import fastdata as fd


class Steps:
    """The number of completed steps, which Accelerate saves."""

    def __init__(self) -> None:
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        """State for a checkpoint."""
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore from a checkpoint."""
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="packed data set or folder of images")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--checkpoint", default="checkpoint", help="a folder")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--resume", help="checkpoint to resume from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
