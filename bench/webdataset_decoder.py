"""Measure what fastdata's decoder gains in a webdataset pipeline that is otherwise the same.

Every row is the same pipeline over the same images: shuffled shards, a shuffle buffer, one or more
stages that make a random-resized crop with a flip of each encoded image, and batches made in the
worker processes of a WebLoader. Only the stages differ; all return uint8.

    python bench/webdataset_decoder.py ~/imagenet/val    # a folder of class folders with .jpg files
    python bench/webdataset_decoder.py                   # 1,000 generated images

Counting starts after a whole epoch and excludes the time between epochs. Rounds are interleaved;
``images/s`` is their median. The last line is JSON.
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from images import jpegs, source_folder, working_set
from measure import Row, add_options, interleaved, machine, missing, report

import fastdata as fd
from fastdata.system import resources

_NEEDS = ("PIL", "torchvision", "webdataset")


def pil(data: Any, size: int) -> Any:
    """Their decoder to Pillow, torchvision's transforms of Pillow images."""
    v2 = _v2()
    stages = v2.Compose([*_crop(size), v2.PILToTensor()])
    return data.decode("pil").to_tuple("jpg", "cls").map_tuple(stages, int)


def torchrgb8(data: Any, size: int) -> Any:
    """Their decoder to uint8 tensors, v2 transforms of tensors."""
    stages = _v2().Compose(_crop(size))
    return data.decode("torchrgb8").to_tuple("jpg", "cls").map_tuple(stages, int)


def torchrgb(data: Any, size: int) -> Any:
    """Their decoder to float tensors, v2 transforms of tensors, uint8 at the end."""
    import torch

    v2 = _v2()
    stages = v2.Compose([*_crop(size), v2.ToDtype(torch.uint8, scale=True)])
    return data.decode("torchrgb").to_tuple("jpg", "cls").map_tuple(stages, int)


def torchvision(data: Any, size: int) -> Any:
    """Torchvision's decoder in a custom stage, v2 transforms of uint8 tensors."""
    import torch
    from torchvision.io import ImageReadMode, decode_image

    stages = _v2().Compose(_crop(size))

    def decode(encoded: bytes) -> Any:
        pixels = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        return stages(decode_image(pixels, ImageReadMode.RGB))

    return data.to_tuple("jpg", "cls").map_tuple(decode, int)


def fastdata(data: Any, size: int) -> Any:
    """Our decoder in their pipeline."""
    decoder = fd.webdataset.decoder(fd.RandomResizedCrop(size, flip=0.5))
    return data.map(decoder).decode(partial=True).to_tuple("jpg", "cls")


_ROWS: dict[str, tuple[Callable[[Any, int], Any], str, str]] = {
    "pil": (pil, "plain", '.decode("pil"), v2 transforms of Pillow images'),
    "torchrgb": (torchrgb, "plain", '.decode("torchrgb"), v2 transforms of float tensors'),
    "torchrgb8": (torchrgb8, "plain", '.decode("torchrgb8"), v2 transforms of uint8 tensors'),
    "torchvision": (torchvision, "plain", "decode_image in a stage, v2 transforms of tensors"),
    "fastdata": (fastdata, "plain", "fd.webdataset.decoder, the same shards"),
    "fastdata-runs": (fastdata, "packed", "fd.webdataset.decoder, shards that fastdata packed"),
}
_BASES = ("pil", "torchrgb", "torchvision")


def main() -> None:
    """Run the benchmark."""
    options = _options()
    facts = machine()
    absent = missing(_NEEDS)
    rows = [Row(name, _ROWS[name][2], left_out=absent) for name in options.only]
    source = source_folder(options.folder, options.cache, quick=options.quick)
    work = working_set(source, options.cache, short_side=options.short_side, images=options.images)
    files = list(jpegs(work / "images"))
    if not absent:
        shards = _written(work, files, len(files) // (8 * options.workers) + 1)
        for _, row in interleaved(rows, options.rounds):
            stages, kind, _ = _ROWS[row.name]
            row.rates.append(_rate(stages, shards[kind], options))
    report(
        "webdataset_decoder",
        rows,
        bases=_BASES,
        settings={
            "source": source.name,
            "images": len(files),
            "kilobytes_per_image": round(sum(f.stat().st_size for f in files) / len(files) / 1e3),
            **{
                name: getattr(options, name)
                for name in ("short_side", "batch", "size", "workers", "seconds", "rounds")
            },
        },
        facts=facts,
        packages=(
            "numpy",
            "opencv-python-headless",
            "pillow",
            "torch",
            "torchvision",
            "webdataset",
        ),
        save=options.save,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, _ROWS)
    parser.add_argument("--batch", type=int, default=64, help="images per batch")
    parser.add_argument(
        "--workers", type=int, default=resources.cpu_count(), help="worker processes"
    )
    parser.add_argument("--images", type=int, default=1500, help="repeat images up to this number")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds to measure in a round")
    options = parser.parse_args()
    if options.quick:
        options.batch, options.size, options.rounds = 2, 64, 1
        options.images, options.workers, options.seconds = 24, 1, 0.01
    # so that an epoch has batches beyond each worker's first, which are not counted
    options.images = max(options.images, 6 * options.workers * options.batch)
    return options


def _written(work: Path, files: list[Path], most: int) -> dict[str, list[str]]:
    """Shards by webdataset's writer, and by fastdata, with a maximum of samples each."""
    import webdataset as wds

    plain, packed = work / f"webdataset-{most}", work / f"packed-{most}"
    if not plain.exists():
        unfinished = plain.with_name(plain.name + ".tmp")
        unfinished.mkdir(exist_ok=True)
        classes = sorted({path.parent.name for path in files})
        order = random.Random(0).sample(files, len(files))  # noqa: S311
        with wds.ShardWriter(str(unfinished / "%06d.tar"), maxcount=most, verbose=0) as writer:
            for number, path in enumerate(order):
                label = classes.index(path.parent.name)
                writer.write({"__key__": f"{number:08}", "jpg": path.read_bytes(), "cls": label})
        unfinished.rename(plain)
    if not packed.exists():
        mean = sum(path.stat().st_size for path in files) // len(files)
        fd.pack(work / "images", packed, shard_size=most * (mean + 2048))
    return {
        name: sorted(map(str, folder.glob("*.tar")))
        for name, folder in (("plain", plain), ("packed", packed))
    }


def _rate(
    stages: Callable[[Any, int], Any], shards: list[str], options: argparse.Namespace
) -> float:
    """Images a second of whole epochs, counted from the first batch of every worker."""
    import torch
    import webdataset as wds

    data = wds.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000)
    loader = wds.WebLoader(
        stages(data, options.size).batched(options.batch, partial=False),
        batch_size=None,
        num_workers=options.workers,
        persistent_workers=True,
    )
    for images, _ in loader:  # an epoch to warm up
        assert images.dtype == torch.uint8
        assert images.numel() == options.batch * 3 * options.size**2
    batches = 0
    seconds = 0.0
    while seconds < options.seconds:
        start = last = 0.0
        for number, _ in enumerate(loader, 1 - options.workers):
            last = time.perf_counter()
            if number == 0:
                start = last
            elif number > 0:
                batches += 1
        seconds += last - start
    return float(batches * options.batch / seconds)


def _crop(size: int) -> list[Any]:
    v2 = _v2()
    return [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]


def _v2() -> Any:
    from torchvision.transforms import v2

    return v2


if __name__ == "__main__":
    main()
