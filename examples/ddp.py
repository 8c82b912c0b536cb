"""Train with plain PyTorch on several processes, and resume mid-epoch from a checkpoint.

    torchrun --nproc-per-node 2 examples/ddp.py train/ --steps 500
    torchrun --nproc-per-node 4 examples/ddp.py train/ --steps 900 --resume checkpoint.pt

Each rank gets an even share of every global batch. The loader's state is the same on all ranks and
does not depend on their number.
"""

import argparse
import os

import torch
import torchvision
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import fastdata as fd


def main() -> None:
    """Train for some steps."""
    args = parse()
    cuda = torch.cuda.is_available()
    distributed.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

    # behind init_process_group, which says which rank this is
    crop = fd.RandomResizedCrop(args.size, flip=0.5)
    loader = fd.Loader(args.data, args.batch_size, crop=crop, device=device)
    model = torchvision.models.get_model(args.model, num_classes=len(loader.source.classes))
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if args.resume is not None:
        state = torch.load(args.resume, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
    ranks = DistributedDataParallel(model)

    while step < args.steps:
        for images, labels in loader:  # a new order in each epoch
            loss = cross_entropy(ranks(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.save_every == 0 or step == args.steps:
                save(args.checkpoint, model, optimizer, loader, step)
            if step == args.steps:
                break
    distributed.destroy_process_group()


def save(
    path: str,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: fd.Loader,
    step: int,
) -> None:
    """Write a checkpoint on one rank, and rename it once it is complete."""
    if distributed.get_rank() == 0:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
            "step": step,
        }
        torch.save(state, f"{path}.tmp")
        os.replace(f"{path}.tmp", path)
        print(f"step {step}: {path}")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="packed data set or folder of images")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--resume", help="checkpoint to resume from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
