"""Compare DALILoader with Loader: random crops from packed shards, per core and in total.

    python bench/dali.py ~/imagenet/val                # a folder of class folders with .jpg files
    python bench/dali.py ~/imagenet/val --device cuda  # nvJPEG, and normalised batches

One process, in which the loaders take turns, with the data in the page cache. ``images/s`` is the
median of the rounds; it means little if other programs run. ``a core`` is images per second of CPU
time of the whole process, including DALI's threads, which other programs hardly affect; it does not
include the GPU's work. ``kB`` is the encoded size from which an average image is decoded. The last
line is JSON.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from statistics import median

import numpy as np
import torch
from images import source_folder, working_set
from measure import Row, add_options, interleaved, machine, report

import fastdata as fd
from fastdata.batch.decoder import Work
from fastdata.errors import MissingExtraError
from fastdata.loaders.dali.feed import Feeder
from fastdata.loaders.dali.imports import PACKAGES
from fastdata.loaders.readers.packed import open_source
from fastdata.system import resources

_ABOUT = {
    "fastdata": "Loader",
    "dali": "DALILoader: our order and crops, whole JPEGs to DALI",
    "dali-cut": "the same, with the restart runs that the crop needs",
}

AnyLoader = fd.Loader | fd.DALILoader


def main() -> None:
    """Run the benchmark."""
    options = _options()
    facts = machine()
    source = source_folder(options.folder, options.cache, quick=options.quick)
    work = working_set(source, options.cache, short_side=options.short_side, images=0)
    if not (work / "dali-shards").exists():
        fd.pack(work / "images", work / "dali-shards")
    rows = [Row(name, _ABOUT[name]) for name in options.only]
    loaders = _open(rows, work / "dali-shards", options)
    per_core: dict[str, list[float]] = {name: [] for name in loaders}
    for number, row in interleaved(rows, options.rounds + 1):
        loader = loaders[row.name]
        # at least a pass, and not a whole number of them
        batches = options.batches // len(loader) * len(loader) + len(loader) - 1
        rate, each = _turn(loader, batches)
        if number:  # the first warms up
            row.rates.append(rate)
            per_core[row.name].append(each)
    for row in rows:
        if not row.left_out:
            row.facts["a core"] = round(median(per_core[row.name]), 1)
            row.facts["kB"] = _kilobytes(row.name, work / "dali-shards", options.size)
    report(
        "dali",
        rows,
        bases=("fastdata", "dali"),
        settings={
            "source": source.name,
            "short_side": options.short_side,
            "size": options.size,
            "batch": options.batch,
            "threads": options.threads,
            "device": options.device,
            "rounds": options.rounds,
        },
        facts=facts,
        packages=("torch", *PACKAGES),
        save=options.save,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, _ABOUT)
    parser.add_argument("--batch", type=int, default=64, help="images per batch")
    parser.add_argument("--batches", type=int, default=32, help="minimum per round")
    parser.add_argument(
        "--threads", type=int, default=resources.cpu_count(), help="decoding threads"
    )
    parser.add_argument("--device", help="default: leave uint8 in host memory")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.size, options.batch, options.batches = 2, 64, 4, 2
    return options


def _open(rows: list[Row], path: Path, options: argparse.Namespace) -> dict[str, AnyLoader]:
    """The loaders by name; rows of loaders that are not installed are left out."""
    kinds: dict[str, Callable[..., AnyLoader]] = {
        "fastdata": fd.Loader,
        "dali": fd.DALILoader,
        "dali-cut": partial(fd.DALILoader, cut=True),
    }
    loaders = {}
    for row in rows:
        try:
            loaders[row.name] = kinds[row.name](
                path,
                options.batch,
                crop=fd.RandomResizedCrop(options.size, flip=0.5),
                threads=options.threads,
                device=options.device,
            )
        except MissingExtraError as error:
            row.left_out = str(error)
    return loaders


def _turn(loader: AnyLoader, batches: int) -> tuple[float, float]:
    """Images per second, and per second of CPU time.

    A turn ends within a pass, which drops what was begun ahead: no work is done in the turn of
    another loader.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    images = 0
    for batch in islice(chain.from_iterable(repeat(loader)), batches):
        images += len(batch.ids)
    if batch.images.is_cuda:
        torch.cuda.synchronize()
    return images / (time.perf_counter() - wall), images / (time.process_time() - cpu)


def _kilobytes(name: str, path: Path, size: int) -> float:
    """Encoded bytes of an image that are decoded, at most; of the first 256 samples."""
    source = open_source(path)
    ids = np.arange(min(256, len(source)))
    feeder = Feeder(source, fd.RandomResizedCrop(size), seed=0, threads=2, cut=name == "dali-cut")
    reading = feeder.submit(Work(0, ids, ids))
    while not reading.wait(1.0):
        pass
    encoded = reading.result().encoded
    feeder.close()
    source.close()
    return round(sum(map(len, encoded)) / len(encoded) / 1000, 1)


if __name__ == "__main__":
    main()
