"""Images per second of whole loaders: files in, shuffled batches of random crops out.

All loaders read the same images, each in the form that it is made for, with the page cache warm, on
the same cores, and deliver uint8 batches of random-resized crops with flips. Each round starts a
fresh process for each loader, so that threads and memory of one do not disturb another; rounds are
interleaved. Counting starts after some seconds of warm-up and excludes the time between epochs, in
which some loaders stop. ``peers/`` shows how each is set up.

The ceiling is the cores' decoding speed: ``fastdata-memory`` is decoding alone, with as many
threads and no loader around it.

    python bench/loaders.py ~/imagenet/val            # a folder of class folders with .jpg files
    python bench/loaders.py ~/imagenet/val --short-side 256
    python bench/loaders.py --only dali,fastdata-tar  # 1,000 generated images

``images/s`` is the median of the rounds; ``low`` and ``high`` are the slowest and the fastest
round. ``x NAME`` is a row's speed relative to that loader. ``gives`` is the type of a batch,
``kB/image`` the size on disk in the loader's form, ``mean`` the mean pixel of one batch (which must
be about the same for all), ``first_batch_s`` the seconds from importing the library to the first
batch. The last line is JSON.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from images import jpegs, source_folder, working_set
from measure import Row, add_options, interleaved, machine, missing, report, versions
from peers import PEERS, Job

from fastdata.system import resources

_SCRIPT = Path(__file__).with_name("run_peer.py")
_DEADLINE = 900  # seconds, for one process
_BASES = ("torchvision-pil", "torchvision-v2", "dali", "ffcv-jpeg", "fastdata-memory")


def main() -> None:
    """Run the benchmark."""
    options = _options()
    facts = machine()
    source = source_folder(options.folder, options.cache, quick=options.quick)
    work = working_set(source, options.cache, short_side=options.short_side, images=options.images)
    files = list(jpegs(work / "images"))
    rows = [_prepared(name, _job(name, work, options)) for name in _names(options)]
    for number, row in interleaved(rows, options.rounds):
        _progress(f"round {number + 1} of {options.rounds}: {row.name}")
        _measure(row, _job(row.name, work, options))
    report(
        "loaders",
        rows,
        bases=_BASES,
        settings={
            "source": options.name or source.name,
            "images": len(files),
            "kilobytes_per_image": _kilobytes(sum(path.stat().st_size for path in files), files),
            **{
                name: getattr(options, name)
                for name in ("short_side", "batch", "size", "threads", "warm_up", "seconds")
            },
            "rounds": options.rounds,
        },
        facts=facts,
        packages=("numpy", "opencv-python-headless", "torch", *_packages()),
        save=options.save,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, PEERS)
    parser.add_argument("--batch", type=int, default=64, help="images per batch")
    parser.add_argument("--threads", type=int, default=resources.cpu_count(), help="cores to use")
    parser.add_argument("--images", type=int, default=4096, help="repeat images up to this number")
    parser.add_argument("--name", help="name of the images in the results; default: the folder's")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds before the measurement")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds to measure in a round")
    options = parser.parse_args()
    if options.quick:
        options.batch, options.size, options.rounds = 4, 64, 1
        options.images, options.warm_up, options.seconds = 24, 0.0, 0.05
    # so that an epoch has batches beyond each worker's first, which are not counted
    options.images = max(options.images, 6 * options.threads * options.batch)
    return options


def _names(options: argparse.Namespace) -> list[str]:
    """Peers to measure: the named ones, or all that make sense for the images."""
    return [
        name
        for name in options.only
        if not PEERS[name].small or options.short_side or options.only != list(PEERS)
    ]


def _job(name: str, work: Path, options: argparse.Namespace) -> Job:
    return Job(
        name,
        str(work.resolve()),
        options.batch,
        options.size,
        options.threads,
        options.warm_up,
        options.seconds,
    )


def _prepared(name: str, job: Job) -> Row:
    """A row for a peer, with its form of the images; left out if that fails."""
    row = Row(name, PEERS[name].about, left_out=missing(PEERS[name].needs))
    if row.left_out or not PEERS[name].prepares:
        return row
    done = job.form.with_name(f"{name}.done")
    mark = json.dumps([job.threads, versions(PEERS[name].packages)])
    if name.startswith("fastdata") or not done.exists() or done.read_text() != mark:
        _progress(f"preparing {name}")
        done.unlink(missing_ok=True)
        if _ask(row, "prepare", job) is None:
            return row
        done.write_text(mark)
    return row


def _measure(row: Row, job: Job) -> None:
    answer = _ask(row, "measure", job)
    if answer is not None:
        row.rates.append(answer.pop("rate"))
        row.facts |= answer


def _ask(row: Row, verb: str, job: Job) -> dict[str, Any] | None:
    """The answer of a process; None if it fails, and the row is then left out."""
    command = [sys.executable, str(_SCRIPT), verb, job.to_json()]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, check=False, text=True, timeout=_DEADLINE
        )
    except subprocess.TimeoutExpired:
        row.left_out = f"{verb}: no answer within {_DEADLINE} s"
        return None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        row.left_out = f"{verb}: {lines[-1]}"
        sys.stderr.write(done.stderr)
        return None
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _packages() -> list[str]:
    return list(dict.fromkeys(name for peer in PEERS.values() for name in peer.packages))


def _kilobytes(size: int, files: Sequence[Path]) -> float:
    return round(size / len(files) / 1000, 1)


def _progress(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
