"""Measure what readers report about damaged data.

    python bench/damage.py [--cases N] [--json]

The same images are packed as shards and as an LMDB file. For each fault, a copy is damaged in one
place, and each reader reads and decodes all its samples in a process of its own. The outcome is
compared with the undamaged data:

    error    an error was raised
    silent   samples differed or were missing, without an error
    crash    the process was killed by a signal
    hang     the process was still running after a minute
    same     all samples were right; the fault hit nothing that the reader uses

Readers that do not decode images, or not to the last row, detect less.
"""

import argparse
import io
import json
import os
import platform
import random
import shutil
import signal
import sys
import tarfile
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from importlib import metadata
from pathlib import Path

import lmdb
import numpy as np
import webdataset
from PIL import Image

from fastdata import photos
from fastdata.converters.check.verify import verify
from fastdata.converters.pack import pack
from fastdata.errors import CorruptError
from fastdata.loaders.readers.packed import LMDBSource, PackedSource, TarSource

Samples = dict[str, bytes]
Reader = Callable[[Path], Samples]
Fault = Callable[[bytes, random.Random], bytes]

_SECONDS = 60
_OUTCOMES = ("same", "silent", "error")  # by the exit code of a child


def main() -> None:
    """Try all faults and print their outcomes."""
    options = _options()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_measure(Path(folder), options.cases, options.seed))
    if options.json:
        facts = {"cases": options.cases, "seed": options.seed, "versions": _versions()}
        print(json.dumps({**facts, "rows": rows}))
        return
    print(", ".join(f"{name} {version}" for name, version in _versions().items()))
    print(f"{options.cases} cases each, seed {options.seed}\n")
    print("| fault | reader | outcome |\n|---|---|---|")
    for row in rows:
        print(f"| {row['fault']} | {row['reader']} | {row['outcome']} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=20, help="cases of each fault (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser.parse_args()


def _versions() -> dict[str, str]:
    names = ("fastdata", "webdataset", "lmdb", "pillow")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def _measure(folder: Path, cases: int, seed: int) -> Iterator[dict[str, str]]:
    photos.generate(folder / "images", images=24, classes=2, scale=0.25)
    pack(folder / "images", folder / "shards", shard_size="100kB")
    pack(folder / "images", folder / "one.lmdb", shard_size="100kB")
    for kind, faults, readers in (
        ("shards", TAR_FAULTS, TAR_READERS),
        ("one.lmdb", LMDB_FAULTS, LMDB_READERS),
    ):
        for fault, change in faults.items():
            for name, reader in readers.items():
                found: Counter[str] = Counter()
                for case in range(cases):
                    rng = random.Random(f"{seed} {fault} {case}")  # noqa: S311
                    found[_outcome(folder, kind, change, reader, rng)] += 1
                outcome = ", ".join(f"{count} {what}" for what, count in found.most_common())
                yield {"fault": fault, "reader": name, "outcome": outcome}


def _outcome(folder: Path, kind: str, change: Fault, reader: Reader, rng: random.Random) -> str:
    """Damage a copy, read it in a child process, and remove it."""
    good = folder / kind
    bad = folder / f"bad-{kind}"
    if good.is_dir():
        shutil.copytree(good, bad)
        target = bad / "shard-000001.tar"
    else:
        target = Path(shutil.copy(good, bad))
    before = target.read_bytes()
    after = change(before, rng)
    target.write_bytes(after)
    child = os.fork()
    if not child:
        signal.alarm(_SECONDS)
        os._exit(_read(good, bad, reader))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    shutil.rmtree(bad) if bad.is_dir() else bad.unlink()
    if status >= 0:
        return _OUTCOMES[status]
    return "hang" if status == -signal.SIGALRM else "crash"


def _read(good: Path, bad: Path, reader: Reader) -> int:
    """Index of the outcome; in a child process."""
    sys.stderr = io.StringIO()
    expected = reader(good)
    try:
        found = reader(bad)
    except BaseException:  # noqa: BLE001 (that is the answer)
        return 2
    return int(found != expected)


def _decoded(samples: Iterable[tuple[str, bytes]]) -> Samples:
    """Samples by key, checked to be decodable."""
    found = {}
    for key, image in samples:
        Image.open(io.BytesIO(image)).convert("RGB")
        found[key] = image
    return found


def _ours(source: PackedSource) -> Samples:
    with closing(source):
        keys = source.keys(np.arange(len(source)))
        return {key: source.read(number) for number, key in enumerate(keys)}


def _verified(path: Path) -> Samples:
    if problems := verify(path).problems:
        raise CorruptError(problems[0].text)
    return {}


def _by_webdataset(path: Path) -> Samples:
    urls = sorted(str(shard) for shard in path.glob("*.tar"))
    samples = webdataset.WebDataset(urls, shardshuffle=False)
    return _decoded((sample["__key__"], sample["jpg"]) for sample in samples)


def _by_tarfile(path: Path) -> Samples:
    members = []
    for shard in sorted(path.glob("*.tar")):
        with tarfile.open(shard) as file:
            for member in file:
                content = file.extractfile(member)
                if member.name.endswith(".jpg") and content is not None:
                    members.append((member.name, content.read()))
    return _decoded(members)


def _by_lmdb(path: Path) -> Samples:
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        entries = [(key, bytes(value)) for key, value in transaction.cursor()]
    return _decoded((key.hex(), value) for key, value in entries if len(key) == 8)


def _flip(data: bytes, place: int, rng: random.Random) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _in_image(data: bytes, rng: random.Random) -> bytes:
    starts = [at for at in range(0, len(data), 512) if data[at : at + 3] == b"\xff\xd8\xff"]
    start = rng.choice(starts)
    return _flip(data, rng.randrange(start + 700, data.index(b"\xff\xd9", start)), rng)


def _in_header(data: bytes, rng: random.Random) -> bytes:
    starts = [at - 257 for at in range(257, len(data), 512) if data[at : at + 5] == b"ustar"]
    return _flip(data, rng.choice(starts) + rng.randrange(500), rng)


def _in_value(data: bytes, rng: random.Random) -> bytes:
    start = rng.choice(
        [at for at in range(16, len(data), 4096) if data[at : at + 2] == b"\xff\xd8"]
    )
    return _flip(data, rng.randrange(start + 700, data.index(b"\xff\xd9", start)), rng)


def _in_tree(data: bytes, rng: random.Random) -> bytes:
    pages = [at for at in range(0, len(data) - 4096, 4096) if data[at + 10] in (1, 2, 8)]
    start = rng.choice(pages)
    lower = (
        150 if data[start + 10] == 8 else int.from_bytes(data[start + 12 : start + 14], "little")
    )
    return _flip(data, start + rng.randrange(lower), rng)


def _zeroed(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) // 4096) * 4096
    return data[:start] + bytes(min(4096, len(data) - start)) + data[start + 4096 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data))]


def _cut_at_block(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data) // 512) * 512]


def _cut_at_page(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(2, len(data) // 4096) * 4096]


TAR_FAULTS: dict[str, Fault] = {
    "bit flip in the scan of a JPEG in a tar": _in_image,
    "bit flip in a tar header": _in_header,
    "4 KiB of zeros in a tar": _zeroed,
    "tar cut anywhere": _cut,
    "tar cut at a block": _cut_at_block,
    "tar emptied": lambda _data, _rng: b"",
}
LMDB_FAULTS: dict[str, Fault] = {
    "bit flip in the scan of a JPEG in an LMDB": _in_value,
    "bit flip in the tree of an LMDB": _in_tree,
    "4 KiB of zeros in an LMDB": _zeroed,
    "LMDB cut at a page": _cut_at_page,
}
TAR_READERS: dict[str, Reader] = {
    "fastdata": lambda path: _ours(TarSource(path)),
    "fastdata verify": _verified,
    "webdataset": _by_webdataset,
    "tarfile": _by_tarfile,
}
LMDB_READERS: dict[str, Reader] = {
    "fastdata": lambda path: _ours(LMDBSource(path)),
    "fastdata verify": _verified,
    "lmdb": _by_lmdb,
}

if __name__ == "__main__":
    main()
