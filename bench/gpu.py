"""How near the ceiling training comes on a GPU: common models, originals and smaller images.

Each row is a run of ``fastdata bench ceiling`` in a process of its own: training on real data over
the same step on a batch that stays on the device, interleaved. The images are packed first, and
repeated until an epoch is long.

    python bench/gpu.py ~/imagenet/val --save bench/results/gpu.json
    python bench/gpu.py --quick                # seconds, also without a GPU: shows that it runs

``share`` is what real data reaches of the ceiling, ``loader`` the CPU time of the training thread
in the loader, ``wait`` the time it spends there, ``spinning`` what the step keeps on a resident
batch beside a loader whose output is thrown away: what it lacks, loading takes by being busy.
The last line is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from images import jpegs, source_folder, working_set
from measure import machine, put_out, versions

import fastdata as fd

_DEADLINE = 900  # seconds, for one row; compilation is most of it


class Case(NamedTuple):
    """A model, and the images it trains on: of their original size where ``short_side`` is None."""

    model: str
    batch_size: int
    short_side: int | None = None


_CASES = (
    Case("resnet50", 256),
    Case("vit_b_16", 256),
    Case("resnet18", 512),
    Case("resnet18", 512, 256),
)
_QUICK = (Case("resnet18", 4), Case("resnet18", 4, 64))


def main() -> None:
    """Measure each case, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="class folders with .jpg files")
    parser.add_argument("--images", type=int, default=20_000, help="repeat images up to so many")
    parser.add_argument("--threads", type=int, help="decoding threads; default: fastdata's own")
    parser.add_argument("--seconds", type=float, default=60.0, help="a row, roughly")
    parser.add_argument("--name", help="of the images in the results; else that of the folder")
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / "cache")
    parser.add_argument("--save", type=Path, help="write the JSON line to this file too")
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")
    given = parser.parse_args()
    if given.quick:
        given.images, given.seconds = 24, 1.0
    source = source_folder(given.folder, given.cache, quick=given.quick)
    rows: list[dict[str, Any]] = []
    print(_LINE.format(*_HEADS))
    for case in _QUICK if given.quick else _CASES:
        work = working_set(source, given.cache, short_side=case.short_side, images=given.images)
        found = _measured(case, _packed(work), given)
        rows.append({**case._asdict(), "found": found})
        print(_LINE.format(*_cells(case, found)), flush=True)
    result = {
        "benchmark": "gpu",
        "settings": {
            "source": given.name or source.name,
            "images": given.images,
            "seconds": given.seconds,
        },
        "machine": machine(),
        "versions": versions(("torch", "torchvision", "triton")),
        "rows": rows,
    }
    put_out(result, given.save)


_LINE = "{:10} {:>9} {:>6} {:>10} {:>10} {:>7} {:>7} {:>6} {:>9} {:>5} {:>5}"
_HEADS = [
    "model",
    "side",
    "batch",
    "images/s",
    "ceiling",
    "share",
    "loader",
    "wait",
    "spinning",
    "GPU",
    "CPU",
]


def _cells(case: Case, found: dict[str, Any]) -> Iterator[str]:
    ceiling = found["ceiling"]
    resident = ceiling["resident_images_per_second"]
    yield case.model
    yield "original" if case.short_side is None else str(case.short_side)
    yield str(case.batch_size)
    yield f"{ceiling['real_images_per_second']:,.0f}"
    yield f"{resident:,.0f}"
    spinning = ceiling["spinning_images_per_second"] / resident
    for share in (ceiling["share"], ceiling["loader_share"], ceiling["wait_share"], spinning):
        yield f"{share:.1%}"
    for share in (found["gpu_utilization"], found["cpu_share"]):
        yield "" if share is None else f"{share:.0%}"


def _packed(work: Path) -> Path:
    """The images as ``fastdata pack`` stores them."""
    path = work / "packed"
    if not path.exists():
        print(f"packing {sum(1 for _ in jpegs(work / 'images')):,} images", file=sys.stderr)
        fd.pack(work / "images", path)
    return path


def _measured(case: Case, path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The report of ``fastdata bench ceiling`` on a case."""
    command = [
        *(sys.executable, "-m", "fastdata", "bench", "ceiling", os.fspath(path), "--json"),
        *("--model", case.model, "--batch-size", str(case.batch_size), "--channels-last"),
        *("--seconds", str(given.seconds)),
    ]
    if given.threads is not None:
        command += ["--threads", str(given.threads)]
    command += ["--size", "32"] if given.quick else ["--amp", "bf16", "--compile"]
    done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
        command, check=False, capture_output=True, text=True, timeout=_DEADLINE
    )
    if done.returncode:
        raise SystemExit(f"{case.model}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    del found["path"]  # of this machine
    return found


if __name__ == "__main__":
    main()
