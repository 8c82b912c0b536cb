"""Measure how close training comes to its ceiling on a GPU, for common models and image sizes.

Each row is a run of ``fastdata bench ceiling`` in a process of its own: training on real data,
relative to the same step on a batch that stays on the device, interleaved. The images are packed
first, and repeated until an epoch is long.

    python bench/gpu.py ~/imagenet/val --save bench/results/gpu.json
    python bench/gpu.py ~/imagenet/val --only vit_b_16 --save vit.json   # one row at a time
    python bench/gpu.py --merge rows.json vit.json --save bench/results/gpu.json
    python bench/gpu.py --quick                # seconds, also without a GPU: shows that it runs

``share`` is the speed on real data as a share of the ceiling. ``spinning`` is the speed on a
resident batch while the loader's batches are discarded, as a share of the ceiling: the rest is lost
because the loader is busy. ``starved`` is the share of the time in which the GPU had no batch to
work on, on its own clock, ``loader`` the CPU time of the training thread in the loader. ``GPU`` is
NVML's utilisation, the time in which any kernel ran; ``SMs`` and ``tensor`` are the shares of busy
multiprocessors and tensor cores; all three on real data only. Each row is saved as soon as it is
measured. The last line is JSON.
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
from measure import machine, put_out, save, versions

import fastdata as fd

_STARTUP = 600  # seconds for one row besides the measurement, mostly compilation


class Case(NamedTuple):
    """A model, and its images: of the original size if ``short_side`` is None."""

    model: str
    batch_size: int
    short_side: int | None = None

    @property
    def name(self) -> str:
        """Name for ``--only``."""
        return self.model if self.short_side is None else f"{self.model}-{self.short_side}"


_CASES = (
    Case("resnet50", 256),
    Case("vit_b_16", 256),
    Case("resnet18", 512),
    Case("resnet18", 512, 256),
)
_QUICK = (Case("resnet18", 4), Case("resnet18", 4, 64))


def main() -> None:
    """Measure each case, or merge measured ones, and print a table."""
    names = [case.name for case in _CASES]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="class folders with .jpg files")
    parser.add_argument("--only", default=",".join(names), help=f"rows of {', '.join(names)}")
    parser.add_argument("--merge", type=Path, nargs="+", help="merge saved files only")
    parser.add_argument("--images", type=int, default=20_000, help="repeat images to this number")
    parser.add_argument("--threads", type=int, help="decoding threads; default: fastdata's own")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for a row, roughly")
    parser.add_argument("--name", help="name of the images in the results; default: the folder's")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(__file__).parent / "cache",
        help="folder for generated and packed images",
    )
    parser.add_argument("--save", type=Path, help="write the JSON line to this file too")
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows it works")
    given = parser.parse_args()
    if unknown := set(given.only.split(",")) - set(names):
        parser.error(f"no {', '.join(sorted(unknown))} among {', '.join(names)}")
    if given.quick:
        given.images, given.seconds = 24, 1.0
    result = _merged(given.merge) if given.merge else _measure(given)
    if given.merge:
        print(_LINE.format(*_HEADS))
        for row in result["rows"]:
            print(_LINE.format(*_cells(row)))
    put_out(result, given.save)


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    """Measure each case in turn, and save after each."""
    source = source_folder(given.folder, given.cache, quick=given.quick)
    rows: list[dict[str, Any]] = []
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
    cases = _QUICK if given.quick else [c for c in _CASES if c.name in given.only.split(",")]
    print(_LINE.format(*_HEADS))
    for case in cases:
        work = working_set(source, given.cache, short_side=case.short_side, images=given.images)
        rows.append({**case._asdict(), "found": _measured(case, _packed(work), given)})
        print(_LINE.format(*_cells(rows[-1])), flush=True)
        if given.save is not None:
            save(result, given.save)
    return result


def _merged(paths: list[Path]) -> dict[str, Any]:
    """Merge the rows of several files with equal machine, settings and versions."""
    results = [json.loads(path.read_text("utf-8")) for path in paths]
    merged: dict[str, Any] = results[0]
    for path, result in zip(paths, results, strict=True):
        for part in ("benchmark", "settings", "versions"):
            if result[part] != merged[part]:
                raise SystemExit(f"{path}: other {part} than {paths[0]}; they make no one table")
        machines = [
            {k: v for k, v in r["machine"].items() if k != "load"} for r in (merged, result)
        ]
        if machines[0] != machines[1]:
            raise SystemExit(f"{path}: another machine than {paths[0]}; they make no one table")
    rows = {
        Case(row["model"], row["batch_size"], row["short_side"]): row
        for r in results
        for row in r["rows"]
    }
    known = [case for case in _CASES if case in rows]
    merged["rows"] = [rows[case] for case in dict.fromkeys((*known, *rows))]
    return merged


_HEADS = [
    "model",
    "side",
    "batch",
    "images/s",
    "ceiling",
    "share",
    "spinning",
    "starved",
    "loader",
    "GPU",
    "SMs",
    "tensor",
    "CPU",
]
_LINE = "{:10} {:>9} {:>6} {:>10} {:>10} {:>7} {:>9} {:>8} {:>7} {:>5} {:>5} {:>7} {:>5}"


def _cells(row: dict[str, Any]) -> Iterator[str]:
    found = row["found"]
    ceiling = found["ceiling"]
    yield row["model"]
    yield "original" if row["short_side"] is None else str(row["short_side"])
    yield str(row["batch_size"])
    yield f"{ceiling['real_images_per_second']:,.0f}"
    yield f"{ceiling['resident_images_per_second']:,.0f}"
    for name in ("share", "spinning_share", "device_wait_share", "loader_share"):
        yield "" if ceiling[name] is None else f"{ceiling[name]:.1%}"
    for name in ("gpu_utilization", "sm_activity", "tensor_activity", "cpu_share"):
        yield "" if found[name] is None else f"{found[name]:.0%}"


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
    deadline = _STARTUP + 4 * given.seconds  # the cold pass and rounds that overrun
    done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
        command, check=False, capture_output=True, text=True, timeout=deadline
    )
    if done.returncode:
        raise SystemExit(f"{case.model}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    del found["path"]  # of this machine
    return found


if __name__ == "__main__":
    main()
