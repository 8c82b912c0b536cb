"""``pack``: its content depends on source and options alone; arguments and report."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from packing import KINDS, content, originals, picture

from fastdata.converters import stages
from fastdata.converters.pack import PackReport, pack, parse_size
from fastdata.converters.pack_run import destination
from fastdata.dataset.catalog.reader import Catalog
from fastdata.errors import (
    BusyError,
    OptionError,
    SourceError,
)
from fastdata.system.files import Lock


@KINDS
def test_workers_change_nothing(
    source: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte is the same for one thread and for many, and for a narrow window of reading."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pack(source, tmp_path / "a" / name, workers=1, shard_size=5000)
    monkeypatch.setattr(stages, "_WINDOW_BYTES", 1)
    pack(source, tmp_path / "b" / name, workers=7, shard_size=5000)

    assert content(tmp_path / "a" / name) == content(tmp_path / "b" / name)


def test_a_copy_of_the_source_gives_the_same_data_set(source: Path, tmp_path: Path) -> None:
    """Neither place nor time enters the files."""
    shutil.copytree(source, tmp_path / "copy")

    pack(source, tmp_path / "a")
    pack(tmp_path / "copy", tmp_path / "b")

    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_the_order_is_shuffled_by_the_seed(source: Path, tmp_path: Path) -> None:
    """Each seed has an order of its own; without a shuffle it is that of ImageFolder."""

    def names(**options: int) -> list[str]:
        out = tmp_path / "out.d"
        pack(source, out, overwrite=True, **options)  # type: ignore[arg-type]
        return Catalog.from_file(out / "catalog.fdc").names(np.arange(12))

    plain = names(shuffle=False)
    zero, one = names(seed=0), names(seed=1)

    assert plain == sorted(plain, key=lambda name: (os.path.dirname(name), name))
    assert sorted(zero) == sorted(one) == sorted(plain)
    assert len({tuple(plain), tuple(zero), tuple(one)}) == 3


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    """Its label is -1, and so it says in the shard."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.jpg").write_bytes(picture(0))

    report = pack(tmp_path / "src", tmp_path / "out")

    assert report.classes == 0
    assert Catalog.from_file(tmp_path / "out/catalog.fdc").column("label").tolist() == [-1]
    assert b"-1" in (tmp_path / "out/shard-000000.tar").read_bytes()


def test_progress_counts_every_file(source: Path, tmp_path: Path) -> None:
    """It ends at the totals, skipped files included, and never goes back."""
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    calls: list[tuple[int, int, int, int]] = []

    report = pack(source, tmp_path / "out", progress=lambda *state: calls.append(state))

    assert [call[0] for call in calls] == list(range(1, 14))
    total = sum(len(data) for data in originals(source).values())
    assert calls[-1] == (13, total, 13, total)
    assert calls == sorted(calls)
    assert report.source_bytes == total - len(picture(3)[:-20])


def test_the_report(source: Path, tmp_path: Path) -> None:
    """It says what was written where."""
    report = pack(source, tmp_path / "new/out.lmdb")

    assert isinstance(report, PackReport)
    assert (report.kind, report.path) == ("lmdb", tmp_path / "new/out.lmdb")
    assert (report.samples, report.classes, report.shards) == (12, 3, 1)
    assert report.bytes == (tmp_path / "new/out.lmdb").stat().st_size
    assert report.seconds > 0


@pytest.mark.parametrize(
    ("reading", "coding", "writing", "limit"),
    [(4, 1, 1, "reading"), (1, 4, 1, "coding"), (1, 1, 4, "writing")],
)
def test_what_limits_a_pack(
    monkeypatch: pytest.MonkeyPatch, reading: int, coding: int, writing: int, limit: str
) -> None:
    """The stage that the others wait for is named."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    one = stages.Bottleneck(1)

    def results() -> Iterator[int]:
        for number in range(10):
            now[0] += reading + coding
            one.coding += coding
            yield number

    for _ in one.timed(results()):
        now[0] += writing

    assert one.stage(10 * writing) == limit


def test_a_pack_says_what_limited_it(source: Path, tmp_path: Path) -> None:
    """Where something was packed one of three is named, and where nothing was done none."""
    assert pack(source, tmp_path / "out").bottleneck in get_args(stages.Stage)
    assert pack(source, tmp_path / "out").bottleneck is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MB", 256_000_000), ("1GiB", 2**30), ("64k", 64_000), (" 5 B ", 5), (7, 7), ("8", 8)],
)
def test_sizes(text: str | int, size: int) -> None:
    """MB are decimal, MiB binary."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "MB", "-5MB", "1.5GB", "5XB", "5 M B", 0, -1])
def test_what_is_no_size(text: str | int) -> None:
    """Each is an OptionError that shows the text."""
    with pytest.raises(OptionError, match="a size must be"):
        parse_size(text)


def test_arguments_are_checked_first(source: Path, tmp_path: Path) -> None:
    """A bad option or a missing source leaves no trace of a destination."""
    with pytest.raises(OptionError, match="workers must be from 1 to 1024, found 0"):
        pack(source, tmp_path / "out", workers=0)
    with pytest.raises(OptionError, match="run_pixels must be from 8 to 65535, found 0"):
        pack(source, tmp_path / "out", run_pixels=0)
    with pytest.raises(SourceError, match="no such folder"):
        pack(tmp_path / "none", tmp_path / "out")
    assert os.listdir(tmp_path) == ["source"]


def test_packing_imports_no_torch(source: Path, tmp_path: Path) -> None:
    """Packing needs neither torch nor lmdb."""
    script = """
import sys
from fastdata.converters.pack import pack
pack(sys.argv[1], sys.argv[2])
print(sorted({"torch", "lmdb"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", script, str(source), str(tmp_path / "out")]

    assert subprocess.check_output(command, text=True) == "[]\n"


def test_the_lock_is_held_while_packing(source: Path, tmp_path: Path) -> None:
    """From within the callback, a second pack is refused."""
    seen: list[BaseException] = []

    def again(*_: int) -> None:
        try:
            with Lock(destination(tmp_path / "out").lock_path, "it"):
                pass
        except BusyError as error:
            seen.append(error)

    pack(source, tmp_path / "out", progress=again)

    assert len(seen) == 12


MILLIONS = """
import resource, sys
from pathlib import Path
import numpy as np
from fastdata.converters import pack_run
from fastdata.converters.images.coding import Coded, Coding
from fastdata.converters.sources.listing import Listing
from fastdata.converters.stages import Loaded
from fastdata.images.probe import ImageInfo

n = int(sys.argv[1])
names = b"".join(b"c/%08d.jpg" % number for number in range(n))
listing = Listing(
    root="none", classes=("c",), labels=np.zeros(n, np.int32), sizes=np.full(n, 90), skipped=(),
    fingerprint="sha256:" + "0" * 64, _names=names, _ends=np.arange(1, n + 1) * 14, _numbers={},
    _renamed={},
)
loaded = Loaded(Coded(bytes(90), ImageInfo("jpeg", 1, 1, 3), "", ()), 0)
pack_run.read_all = lambda listing, order, workers, coding: ((place, loaded) for place in order)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
output = pack_run.Output(16_000_000)
run = pack_run.PackRun(listing, Path(sys.argv[2]), Coding(None), output, workers=1)
assert run.run().samples == n
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_memory_grows_with_the_catalog_alone(tmp_path: Path) -> None:
    """Two million samples take what their rows and names take, and a bound of what is under way."""
    grown = []
    for samples in (200_000, 2_000_000):
        command = [sys.executable, "-c", MILLIONS, str(samples), str(tmp_path / f"{samples}.lmdb")]
        grown.append(int(subprocess.check_output(command)) << 10)

    row = 40 + len(b"c/00000000\0c/00000000.jpg")
    assert grown[1] - grown[0] < 2.5 * row * 1_800_000
