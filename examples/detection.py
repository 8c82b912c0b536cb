"""Train a detector: boxes are cropped and flipped with their images.

    # img/0001.jpg with img/0001.json: {"boxes": [[x0, y0, x1, y1], ...], "classes": [1, ...]}
    fastdata pack img/ train/ --fields json
    python examples/detection.py train/ --classes 91 --steps 500

Boxes with less than a quarter of their area left in the crop are dropped.
"""

import argparse
import itertools
import json

import numpy as np
import numpy.typing as npt
import torch
import torchvision

import fastdata as fd
from fastdata.batch.targets import crop_boxes

KEPT = 0.25  # fraction of a box's area that must be left for it to count


def main() -> None:
    """Train for some steps."""
    args = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    crop = fd.RandomResizedCrop(args.size, scale=(0.3, 1.0), flip=0.5)
    loader = fd.Loader(args.data, args.batch_size, crop=crop, fields=["json"], device=device)
    model = torchvision.models.get_model(
        args.model, num_classes=args.classes, weights=None, weights_backbone=None
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, batch in enumerate(itertools.islice(epochs, args.steps), start=1):
        losses = model(list(batch.images), targets(batch, crop.shape))
        loss = sum(losses.values())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if step % 10 == 0 or step == args.steps:
            print(f"step {step}: loss {loss.item():.3f}")
    loader.close()


def targets(batch: fd.Batch, shape: tuple[int, int]) -> list[dict[str, torch.Tensor]]:
    """Boxes and classes of each image in a batch, as torchvision's detectors expect them."""
    assert batch.crops is not None  # the loader was given fields=
    found = []
    for row, text in enumerate(batch.fields["json"]):
        given = json.loads(text) if text else {"boxes": [], "classes": []}
        before = np.array(given["boxes"], np.float64).reshape(-1, 4)
        boxes, visible = crop_boxes(before, batch.crops, row, shape)
        scale = np.prod(batch.crops.scaled[row] / batch.crops.source[row, 2:])
        kept = visible & (area(boxes) >= KEPT * scale * area(before))
        labels = torch.tensor(given["classes"], dtype=torch.int64)[torch.from_numpy(kept)]
        one = {"boxes": torch.from_numpy(boxes[kept]).float(), "labels": labels}
        found.append({name: values.to(batch.images.device) for name, values in one.items()})
    return found


def area(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Areas of (M, 4) boxes in pixels, (M,)."""
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return np.asarray(width * height)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="data set packed with boxes as a JSON field")
    parser.add_argument("--classes", type=int, default=91, help="including class 0, the background")
    parser.add_argument("--model", default="ssdlite320_mobilenet_v3_large")
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=500)
    return parser.parse_args()


if __name__ == "__main__":
    main()
