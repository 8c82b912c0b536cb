"""Measure what a larger data set, or a larger job, costs at start-up and for each batch.

    python bench/scale.py [--plot scale.png]

A catalog of n samples is a sparse file with a true header, which opens like that of n real samples;
batches are then planned at random positions of an epoch, for ranks of jobs of 1 to 4,096. Nothing
is decoded. Printed are the time and the memory to open the catalog, and the median time to plan a
batch of 256: positions, permutation, crops. The last line is JSON.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine, put_out, versions

from fastdata.dataset.catalog.builder import encode_header
from fastdata.dataset.catalog.format import PART_ROWS
from fastdata.dataset.catalog.reader import Catalog, decode_header
from fastdata.plan.crop import RandomResizedCrop
from fastdata.plan.epochs import BatchPlan, Epochs, Shuffle, Stratum, augmentation_keys

_BATCH = 256
_TEXT = 24  # bytes of key and name per sample


def open_catalog(samples: int, folder: Path) -> tuple[float, float]:
    """Seconds to open a catalog with this many samples, and MiB of memory that it needed."""
    parts = [(min(PART_ROWS, samples - first) * _TEXT, 0) for first in range(0, samples, PART_ROWS)]
    data = encode_header(samples, (), parts)
    header = decode_header(data, "header")
    path = folder / "catalog.fdc"
    path.write_bytes(data)
    with path.open("r+b") as file:
        file.truncate(len(data) + sum(part.bytes for part in header.parts))
    before, start = _resident(), time.perf_counter()
    catalog = Catalog.from_file(path)
    seconds = time.perf_counter() - start
    assert len(catalog) == samples
    return seconds, (_resident() - before) / 2**20


def plan_batches(samples: int, world_size: int, shuffle: Shuffle, count: int) -> float:
    """Median seconds to plan a batch at a random place of an epoch, for a random rank."""
    dice = np.random.default_rng(0)
    epochs = Epochs("f", (Stratum(range(samples), samples),), shuffle)
    crop = RandomResizedCrop(224, flip=0.5)
    sizes = np.tile(np.array([[500, 375]], np.int64), (_BATCH, 1))

    def one() -> float:
        start = time.perf_counter()
        rank = int(dice.integers(world_size))
        plan = BatchPlan(samples, _BATCH, drop_last=False, rank=rank, world_size=world_size)
        positions, _ = plan.positions(int(dice.integers(len(plan))))
        ids, copies = epochs.draw(positions, 3)
        keys = augmentation_keys(ids, copies)
        crop.plan(sizes[: len(ids)], keys, seed=0, epoch=3)
        return time.perf_counter() - start

    one()
    return statistics.median(one() for _ in range(count))


def main() -> None:
    """Measure, print, plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plot", type=Path, help="write a figure to this file")
    parser.add_argument("--save", type=Path, help="write the JSON line to this file too")
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")
    given = parser.parse_args()
    sizes = [10**4, 10**5] if given.quick else [10**power for power in range(4, 10)]
    worlds = [1, 16] if given.quick else [1, 16, 256, 4096]
    count = 5 if given.quick else 200
    rows: list[dict[str, Any]] = []
    print(f"{'samples':>14} {'open ms':>9} {'MiB':>6} {'plan us':>9} {'window us':>10}")
    for samples in sizes:
        with tempfile.TemporaryDirectory() as folder:
            seconds, memory = open_catalog(samples, Path(folder))
        row = {
            "samples": samples,
            "open_ms": round(seconds * 1e3, 2),
            "open_mib": round(memory, 2),
            "plan_us": round(plan_batches(samples, 1, shuffle=True, count=count) * 1e6, 1),
            "window_us": round(plan_batches(samples, 1, shuffle="window", count=count) * 1e6, 1),
        }
        rows.append(row)
        print("{samples:14,} {open_ms:9} {open_mib:6} {plan_us:9} {window_us:10}".format(**row))
    ranks = []
    for world in worlds:
        cost = plan_batches(10**9 if not given.quick else 10**5, world, shuffle=True, count=count)
        ranks.append({"world_size": world, "plan_us": round(cost * 1e6, 1)})
        print("{world_size:14,} ranks {plan_us:20} us to plan".format(**ranks[-1]))
    result = {
        "benchmark": "scale",
        "machine": machine(),
        "versions": versions(("numpy",)),
        "samples": rows,
        "ranks": ranks,
    }
    if given.plot is not None:
        _plot(rows, ranks, given.plot)
    put_out(result, given.save)


def _resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def _plot(rows: list[dict[str, Any]], ranks: list[dict[str, Any]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    column: Callable[[str], list[float]] = lambda name: [row[name] for row in rows]  # noqa: E731
    left.plot(column("samples"), column("plan_us"), marker="o", label="full shuffle")
    left.plot(column("samples"), column("window_us"), marker="s", label="window")
    left.set(xscale="log", xlabel="samples", ylabel="µs to plan a batch of 256", ylim=(0, None))
    left.legend()
    right.plot([row["world_size"] for row in ranks], [row["plan_us"] for row in ranks], marker="o")
    right.set(xscale="log", xlabel="ranks", ylabel="µs to plan a batch of 256", ylim=(0, None))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
