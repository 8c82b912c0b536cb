"""Train with timm's models, optimisers, schedules, mixup and weight averaging, fed by fastdata.

    python examples/timm_fit.py train/ --model vit_tiny_patch16_224 --steps 500
    torchrun --nproc-per-node 2 examples/timm_fit.py train/ --steps 900 --resume checkpoint.pt

The step is that of timm's own train.py; fd.Loader replaces ``timm.data.create_loader`` and its
samplers and transforms. Mixup draws from numpy's global generator, so after resuming, samples and
crops are the same but its mixing is not.
"""

import argparse
import os

import timm
import torch
from timm.data import Mixup, resolve_model_data_config
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, init_distributed_device, is_primary
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import fastdata as fd


def main() -> None:
    """Train for some steps."""
    args = parse()
    device = init_distributed_device(args)  # under torchrun, starts torch.distributed

    classes = len(fd.open(args.data).source.classes)
    model = timm.create_model(args.model, num_classes=classes)
    model = model.to(device, memory_format=torch.channels_last)
    expects = resolve_model_data_config(model)
    size = args.size or expects["input_size"][1]
    loader = fd.Loader(
        args.data,
        args.batch_size,
        crop=fd.RandomResizedCrop(size, flip=0.5),
        device=device,
        normalize=fd.Normalization(expects["mean"], expects["std"]),
        augment=Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=classes),
    )
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    scheduler, _ = create_scheduler_v2(
        optimizer,
        num_epochs=-(-args.steps // len(loader)),
        step_on_epochs=False,
        updates_per_epoch=len(loader),
    )
    average = ModelEmaV3(model, decay=0.999, use_warmup=True)
    step = 0
    if args.resume is not None:
        state = torch.load(args.resume, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
    ranks = DistributedDataParallel(model) if args.distributed else model
    criterion = SoftTargetCrossEntropy()

    while step < args.steps:
        for images, labels in loader:  # labels are class probabilities, (N, classes)
            scheduler.step_update(step)
            loss = criterion(ranks(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update(model, step)
            step += 1
            if is_primary(args) and (step % args.save_every == 0 or step == args.steps):
                state = {
                    "model": model.state_dict(),
                    "average": average.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "step": step,
                }
                torch.save(state, f"{args.checkpoint}.tmp")
                os.replace(f"{args.checkpoint}.tmp", args.checkpoint)
                print(f"step {step}: {args.checkpoint}")
            if step == args.steps:
                break
    if args.distributed:
        distributed.destroy_process_group()


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="packed data set or folder of images")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, help="default: the model's own")
    parser.add_argument("--batch-size", type=int, default=64, help="per rank and step; even")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--resume", help="checkpoint to resume from")
    return parser.parse_args()


if __name__ == "__main__":
    main()
