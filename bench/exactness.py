"""Compare which samples each rank gets, in which order and with which pixels, for three loaders.

    python bench/exactness.py

22 samples in 5 shards, batches of 4, random crops, seed 0. Each case is run with fastdata, with
torch's DataLoader and DistributedSampler on the same images, and with WebDataset and split_by_node
on the same shards, set up as their documentation shows; every rank is a process of its own. Nothing
is timed. The last line is JSON.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from measure import missing, versions

_BATCH = 4
_SAMPLES = 22
Batches = list[list[tuple[int, str]]]  # number of the image, digest of its pixels


def fastdata_batches(folder: Path, workers: int, *, train: bool) -> Iterator[Any]:
    """Batches of fastdata; evaluation counts valid samples only."""
    import fastdata as fd

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    loader = fd.Loader(
        folder / "packed",
        _BATCH,
        crop=fd.RandomResizedCrop(16),
        shuffle=train,
        threads=max(1, workers),
        ranks=fd.Ranks(rank, world),
    )
    for batch in loader:
        images = batch.images.permute(0, 2, 3, 1).contiguous()
        numbers = [int(key) for key in batch.keys]
        rows = zip(numbers, images, batch.valid.tolist(), strict=True)
        yield [(number, _digest(image)) for number, image, valid in rows if valid]


def torch_batches(folder: Path, workers: int, *, train: bool) -> Iterator[Any]:
    """Batches of torch's DataLoader with torchvision's v2 transforms."""
    import torch
    from torch.utils.data import DataLoader, Dataset, DistributedSampler
    from torchvision.io import decode_image
    from torchvision.transforms import v2

    class Images(Dataset):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.crop = v2.RandomResizedCrop(16, antialias=True)

        def __len__(self) -> int:
            return _SAMPLES

        def __getitem__(self, number: int) -> tuple[int, torch.Tensor]:
            return number, self.crop(decode_image(str(folder / "images" / f"{number:03}.jpg")))

    torch.manual_seed(0)
    data = Images()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sampler: Any = DistributedSampler(data, world, rank, shuffle=train, seed=0, drop_last=train)
    loader = DataLoader(
        data, _BATCH, sampler=sampler, num_workers=workers, drop_last=train, collate_fn=list
    )
    for batch in loader:
        yield [(number, _digest(image)) for number, image in batch]


def webdataset_batches(folder: Path, workers: int, *, train: bool) -> Iterator[Any]:
    """Batches of WebDataset's WebLoader, split by node and worker."""
    import torch
    import webdataset as wds
    from torchvision.transforms import v2

    torch.manual_seed(0)
    crop = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(16, antialias=True)])
    shards = sorted(map(str, (folder / "packed").glob("*.tar")))
    data = wds.WebDataset(
        shards,
        shardshuffle=100 if train else False,
        nodesplitter=wds.split_by_node,
        seed=0,
        empty_check=False,
    )
    if train:
        data = data.shuffle(100, seed=0)
    data = data.decode("pil").to_tuple("__key__", "jpg").map_tuple(int, crop)
    batches = data.batched(_BATCH, collation_fn=list, partial=not train)
    for batch in wds.WebLoader(batches, batch_size=None, num_workers=workers):
        yield [(number, _digest(image)) for number, image in batch]


_ROWS = {
    "fastdata": (fastdata_batches, ()),
    "torch DataLoader": (torch_batches, ("torchvision",)),
    "webdataset": (webdataset_batches, ("webdataset", "torchvision")),
}


def ranks(name: str, folder: Path, world: int, workers: int, *, train: bool) -> list[Batches]:
    """The batches of each rank, each from a process of its own."""
    found = []
    for rank in range(world):
        command = [sys.executable, __file__, "--rank", name, str(folder), str(workers), str(train)]
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)}
        done = subprocess.run(  # noqa: S603
            command, env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        found.append([[tuple(x) for x in batch] for batch in json.loads(done.stdout)])
    return found


def cases(name: str, folder: Path) -> dict[str, str]:
    """The outcome of each case, in words and numbers."""
    train = ranks(name, folder, 2, 2, train=True)
    held_out = Counter(chain(*map(_numbers, ranks(name, folder, 4, 1, train=False))))
    repeated = sum(held_out.values()) - len(held_out)
    one, two = (ranks(name, folder, 1, workers, train=True)[0] for workers in (1, 2))
    same_order = _numbers(one) == _numbers(two)
    same_pixels = dict(chain(*one)).items() & dict(chain(*two)).items()
    return {
        "training batches of 2 ranks": str([len(batches) for batches in train]),
        "evaluation on 4 ranks": f"{len(held_out)} of {_SAMPLES} samples, {repeated} repeated",
        "order with 1 and with 2 workers": "the same" if same_order else "differs",
        "crops with 1 and with 2 workers": f"{len(same_pixels)} of {len(_numbers(one))} the same",
    }


def main() -> None:
    """Run every case for every loader."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    results: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder)
        for row, (_, needs) in _ROWS.items():
            absent = missing(needs)
            results[row] = {"left out": absent} if absent else cases(row, folder)
    for case in results["fastdata"]:
        print(case)
        for row, found in results.items():
            print(f"  {row:18} {found.get(case, found.get('left out', ''))}")
    packages = ("torch", "torchvision", "webdataset")
    print(json.dumps({"benchmark": "exactness", **results, "versions": versions(packages)}))


def _numbers(batches: Batches) -> list[int]:
    return [number for number, _ in chain(*batches)]


def _make(folder: Path) -> None:
    """The images, and the same packed in five shards."""
    import cv2
    import numpy as np

    import fastdata as fd

    (folder / "images").mkdir()
    ramp = np.add.outer(np.arange(96), np.arange(96)).astype(np.uint8)
    for number in range(_SAMPLES):
        picture = np.stack([ramp + number, ramp, 255 - ramp], axis=2).astype(np.uint8)
        cv2.imwrite(str(folder / "images" / f"{number:03}.jpg"), picture)
    size = max(path.stat().st_size for path in (folder / "images").iterdir())
    fd.pack(folder / "images", folder / "packed", shard_size=5 * (size + 3000))


def _digest(image: Any) -> str:
    return hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        _, _, chosen, where, threads, training = sys.argv
        function = _ROWS[chosen][0]
        print(json.dumps(list(function(Path(where), int(threads), train=training == "True"))))
    else:
        main()
