"""Train semantic segmentation: masks are cropped, scaled and flipped with their images.

    # img/0001.jpg with its mask img/0001.png: class indices in gray, or with a palette as in VOC
    fastdata pack img/ train/ --fields png
    python examples/segmentation.py train/ --classes 21 --steps 500

Pixels outside an image are labelled 255, which the loss ignores.
"""

import argparse
import itertools

import torch
import torchvision
from torch.nn.functional import cross_entropy

import fastdata as fd
from fastdata.batch.targets import IGNORED


def main() -> None:
    """Train for some steps."""
    args = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    crop = fd.RandomResizedCrop(args.size, scale=(0.25, 1.0), flip=0.5)
    loader = fd.Loader(args.data, args.batch_size, crop=crop, mask=args.mask, device=device)
    model = torchvision.models.get_model(
        args.model, num_classes=args.classes, weights=None, weights_backbone=None
    ).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, batch in enumerate(itertools.islice(epochs, args.steps), start=1):
        assert batch.masks is not None  # the loader was given mask=
        scores = model(batch.images)["out"]  # (N, classes, H, W)
        loss = cross_entropy(scores, batch.masks.long(), ignore_index=IGNORED)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == args.steps:
            print(f"step {step}: loss {loss.item():.3f}")
    loader.close()


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="data set packed with masks as a field")
    parser.add_argument("--mask", default="png", help="field with the mask")
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--model", default="lraspp_mobilenet_v3_large")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=500)
    return parser.parse_args()


if __name__ == "__main__":
    main()
