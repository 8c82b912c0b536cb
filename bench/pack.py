"""Compare the speed of packing with FFCV's writer, WebDataset's ShardWriter and tar.

    python bench/pack.py [FOLDER] [--images 2000] [--rounds 5]

Every row reads the same files, which are in the page cache, and writes a data set to the folder of
``--cache``, which should be on the disk to be measured. Rows that end in ``-keep`` copy the images'
bytes, as tar and ShardWriter do; the others re-encode each JPEG, as FFCV does (lossily; fastdata
keeps every pixel). The times of tar and of fastdata include syncing all files to disk; FFCV and
ShardWriter do not sync. FFCV's writer gets as many workers as there are cores, ShardWriter is one
process by design. The last line is JSON.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from images import jpegs, source_folder, working_set
from measure import Row, add_options, interleaved, machine, missing, report

import fastdata
from fastdata.system import resources

_SHARD = 256_000_000  # bytes, fastdata's default


def fastdata_rows(name: str, source: Path, target: Path) -> None:
    """Pack into shards or LMDB, re-encoding or not."""
    kind = target / ("out.lmdb" if "lmdb" in name else "out")
    fastdata.pack(source, kind, keep_bytes=name.endswith("-keep"), shard_size=_SHARD)


def tar(name: str, source: Path, target: Path) -> None:  # noqa: ARG001
    """One tar file, synced to disk."""
    path = target / "out.tar"
    subprocess.run(["tar", "--hard-dereference", "-cf", path, "-C", source, "."], check=True)  # noqa: S603, S607
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def shard_writer(name: str, source: Path, target: Path) -> None:  # noqa: ARG001
    """WebDataset's writer in a plain loop, as in its documentation."""
    import webdataset

    pattern = str(target / "shard-%06d.tar")
    classes = sorted({path.parent.name for path in jpegs(source)})
    with webdataset.ShardWriter(pattern, maxsize=_SHARD, verbose=0) as sink:
        for path in jpegs(source):
            sink.write(
                {
                    "__key__": f"{path.parent.name}/{path.stem}",
                    "jpg": path.read_bytes(),
                    "cls": classes.index(path.parent.name),
                }
            )


def ffcv_writer(name: str, source: Path, target: Path) -> None:  # noqa: ARG001
    """FFCV's writer in JPEG mode."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    writer = DatasetWriter(str(target / "out.beton"), fields, num_workers=resources.cpu_count())
    writer.from_indexed_dataset(ImageFolder(source))


Run = Callable[[str, Path, Path], None]

_ROWS: dict[str, tuple[str, Run, tuple[str, ...]]] = {
    "fastdata-tar": ("tar shards, coded in restart runs", fastdata_rows, ()),
    "fastdata-lmdb": ("LMDB, coded in restart runs", fastdata_rows, ()),
    "ffcv-jpeg": ("DatasetWriter, JPEG at quality 90", ffcv_writer, ("ffcv", "torchvision")),
    "fastdata-tar-keep": ("tar shards, bytes kept", fastdata_rows, ()),
    "fastdata-lmdb-keep": ("LMDB, bytes kept", fastdata_rows, ()),
    "shardwriter": ("webdataset.ShardWriter", shard_writer, ("webdataset",)),
    "tar": ("tar cf, then fsync", tar, ()),
}


def measure(row: Row, source: Path, cache: Path, images: int) -> None:
    """One round of one row."""
    _, run, _ = _ROWS[row.name]
    target = cache / "packed"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    os.sync()  # what others left to be written is not this row's to wait for
    started = time.perf_counter()
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            run(row.name, source, target)
        row.rates.append(images / (time.perf_counter() - started))
        row.facts["MB"] = round(sum(f.stat().st_size for f in target.rglob("*.*")) / 1e6, 1)
    except Exception as error:  # noqa: BLE001 - a peer that fails is left out with its reason
        row.left_out = f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(target, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser, _ROWS)
    parser.add_argument("--images", type=int, default=2000, help="repeat images up to this number")
    given = parser.parse_args()
    facts = machine()
    rounds, least = (2, 0) if given.quick else (given.rounds, given.images)
    folder = source_folder(given.folder, given.cache, quick=given.quick)
    source = working_set(folder, given.cache, short_side=given.short_side, images=least) / "images"
    sizes = [path.stat().st_size for path in jpegs(source)]
    rows = [
        Row(name, about, left_out=missing(needs))
        for name, (about, _, needs) in _ROWS.items()
        if name in given.only
    ]
    for number, row in interleaved(rows, rounds + 1):  # the first imports, and fills the cache
        print(f"round {number} of {rounds}: {row.name}", file=sys.stderr)
        measure(row, source, given.cache, len(sizes))
        row.rates = row.rates[number == 0 :]
    report(
        "pack",
        rows,
        bases=["ffcv-jpeg", "shardwriter", "tar"],
        settings={"images": len(sizes), "MB": round(sum(sizes) / 1e6, 1), "rounds": rounds},
        facts=facts,
        packages=["ffcv", "webdataset", "lmdb"],
        save=given.save,
    )


if __name__ == "__main__":
    main()
