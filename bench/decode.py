"""Images decoded, cropped and resized per second on one core, from memory.

Every decoder gets the same JPEGs and the same random crops (plans of fastdata's
``RandomResizedCrop``) on one thread that is pinned to one core, and scales the crops to a square.
Decoders take turns every few images, so that other load on the machine affects all alike.

The ceiling is the core: images fit into its caches, and no other data are read. Only work that the
crop does not need can be saved.

    python bench/decode.py ~/imagenet/val             # a folder of class folders with .jpg files
    python bench/decode.py ~/imagenet/val --short-side 256
    python bench/decode.py                            # 1,000 generated images

``images/s`` is the median of the rounds; ``low`` and ``high`` are the slowest and the fastest
round. ``x NAME`` is a row's speed relative to that decoder. ``off`` is the mean difference of the
pixels from Pillow's, in steps of 1/255: near 0 for decoders that antialias as Pillow does, several
for INTER_LINEAR, which skips source pixels. The last line is JSON.
"""

import argparse
import os
import time
from collections.abc import Sequence

import numpy as np
from decoders import DECODERS, Decode, Pixels, Task
from images import jpegs, source_folder, working_set
from measure import Row, add_options, interleaved, machine, missing, report

from fastdata.images.probe import probe
from fastdata.plan.crop import RandomResizedCrop

_PACKAGES = (
    "numpy",
    "opencv-python-headless",
    "Pillow",
    "simplejpeg",
    "torch",
    "torchvision",
)
_TURN = 32  # images that a decoder has in one turn: some 50 ms


def main() -> None:
    """Run the benchmark."""
    options = _options()
    facts = machine()
    source = source_folder(options.folder, options.cache, quick=options.quick)
    work = working_set(source, options.cache, short_side=options.short_side, images=0)
    images = [path.read_bytes() for path in list(jpegs(work / "images"))[: options.crops]]
    tasks = list(_tasks(images, options.crops, options.size))
    core = _use_one_core()
    rows, decoders = _prepare(options.only, tasks, options.size)
    _measure([row for row in rows if not row.left_out], decoders, tasks, options.rounds)
    report(
        "decode",
        rows,
        bases=("simplejpeg+opencv", "simplejpeg+torch"),
        settings={
            "source": source.name,
            "images": len(images),
            "kilobytes_per_image": round(sum(map(len, images)) / len(images) / 1000, 1),
            "short_side": options.short_side,
            "crops": options.crops,
            "size": options.size,
            "rounds": options.rounds,
            "core": core,
        },
        facts=facts,
        packages=_PACKAGES,
        save=options.save,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, DECODERS)
    parser.add_argument("--crops", type=int, default=1000, help="crops to decode in a round")
    options = parser.parse_args()
    if options.quick:
        options.crops, options.rounds = 40, 2
    return options


def _tasks(images: list[bytes], crops: int, size: int) -> list[Task]:
    """The crops of a round, in turns; images repeat if there are fewer than crops."""
    infos = [probe(data) for data in images]
    sizes = np.array([(info.width, info.height) for info in infos], np.int64)  # (n, 2)
    tasks = []
    for start in range(0, crops, _TURN):
        ids = np.arange(start, min(start + _TURN, crops), dtype=np.int64)  # (N,)
        which = ids % len(images)
        plan = RandomResizedCrop(size).plan(sizes[which], ids, seed=0, epoch=0)
        tasks.append(Task([images[i] for i in which], plan))
    return tasks


def _use_one_core() -> int:
    """Pin this process to the last of its cores, as the first one serves most interrupts."""
    import cv2
    import torch

    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    if not hasattr(os, "sched_setaffinity"):  # macOS
        return -1
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def _prepare(only: list[str], tasks: list[Task], size: int) -> tuple[list[Row], dict[str, Decode]]:
    """A row for each decoder, its function, and a first turn, which also compares the pixels."""
    rows, decoders = [], {}
    truth: Sequence[Pixels] = ()
    for name, decoder in DECODERS.items():
        row = Row(name, decoder.about, left_out=missing(decoder.needs))
        if not row.left_out and (name in only or name == "pillow"):
            decoders[name] = decoder.make(tasks, size)
            pixels = decoders[name](0)
            truth = truth or pixels
            row.facts["off"] = _difference(pixels, truth)
        if name in only:
            rows.append(row)
    return rows, decoders


def _difference(pixels: Sequence[Pixels], truth: Sequence[Pixels]) -> float:
    pairs = zip(pixels, truth, strict=True)
    return round(float(np.mean([np.abs(a.astype(int) - b).mean() for a, b in pairs])), 2)


def _measure(rows: list[Row], decoders: dict[str, Decode], tasks: list[Task], rounds: int) -> None:
    """Fill in the rates of the rows."""
    seconds = {row.name: [0.0] * rounds for row in rows}
    for turn, row in interleaved(rows, rounds * len(tasks)):
        begun = time.perf_counter()
        decoders[row.name](turn % len(tasks))
        seconds[row.name][turn // len(tasks)] += time.perf_counter() - begun
    crops = sum(len(task.images) for task in tasks)
    for row in rows:
        row.rates.extend(crops / spent for spent in seconds[row.name])


if __name__ == "__main__":
    main()
