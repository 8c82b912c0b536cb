"""A pack may end at any moment: what is there is whole, and the next one ends as if never stopped.

Each pack that is to end runs in a child forked from a process of one thread, and ends at its n-th
call that changes the disk, for every seventh n there is or, in the long tests, for each.
"""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from packing import KINDS, originals, twenty
from places import HELPERS
from strides import EVERY

from fastdata.converters.pack import pack

SERVER = """
import os, shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
os.fsync = lambda _: None  # no power is cut but in play
import pytest
from faults import Kill, PowerCut, install
from packing import content
from fastdata.converters.pack import pack

source, work, name, fault, size, old, first, step = sys.argv[2:]
fault = {"kill": Kill, "power": PowerCut}[fault]
options = {"shard_size": int(size), "overwrite": bool(old)}
work = Path(work)
fresh, out = work / "fresh", work / "out"
pack(source, fresh / name, shard_size=int(size))
expected = content(fresh / name) if name == "shards" else content(fresh)
if old:
    pack(source, work / "old" / name, seed=1, shard_size=int(old))

def packed_in_child(at):
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            install(fault(at), out, patch)
            pack(source, out / name, **options)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def files():
    return content(out / name) if name == "shards" else content(out)

def is_final(path):
    return not path.endswith((".tmp", ".lock", ".journal")) and not path.startswith(".pack.")

def check_what_is_there():
    before = content(work / "old" / name) if old and name == "shards" else (
        content(work / "old") if old else {})
    there = files() if (out / name).parent.exists() and (
        name != "shards" or (out / name).exists()) else {}
    for path, data in there.items():
        assert not is_final(path) or data in (expected.get(path), before.get(path)), path
    if "dataset.json" in there:
        whole = expected if there["dataset.json"] == expected["dataset.json"] else before
        assert whole.items() <= there.items()

at = 1 - int(step)
ends = resumed = 0
while True:
    at += int(step)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    if old:
        shutil.copytree(work / "old", out, dirs_exist_ok=True)
    if first:
        assert packed_in_child(int(first)) == 9
    code = packed_in_child(at)
    if code == 0:
        break
    assert code == 9, code
    ends += 1
    check_what_is_there()
    report = pack(source, out / name, **options)
    resumed += report.resumed > 0
    assert files() == expected, (at, sorted(files()), sorted(expected))
    assert pack(source, out / name, shard_size=int(size)).already_complete
print(ends, resumed)
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is packed."""
    return twenty(tmp_path_factory.mktemp("source"))


def ended(
    source: Path, work: Path, name: str, fault: str, step: int, *, old: str = "", first: str = ""
) -> tuple[int, int]:
    """Number of calls that packs were ended at, and of packs that took samples over then."""
    command = [sys.executable, "-c", SERVER, str(HELPERS)]
    command += [str(source), str(work), name, fault, "35000", old, first, str(step)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    ends, resumed = map(int, result.stdout.split())
    return ends, resumed


@EVERY
@KINDS
@pytest.mark.parametrize("fault", ["kill", "power"])
def test_an_end_at_any_call(
    pictures: Path, tmp_path: Path, name: str, fault: str, step: int
) -> None:
    """No partial file under a final name; the same command then ends with the same bytes.

    A power cut takes with it whatever was not synced by then, names of files included.
    """
    ends, resumed = ended(pictures, tmp_path, name, fault, step)

    assert ends > 40 // step
    assert resumed > 5 // step


@EVERY
@KINDS
def test_an_end_of_a_pack_that_continues(
    pictures: Path, tmp_path: Path, name: str, step: int
) -> None:
    """One that goes on behind whole shards may end at any call, too."""
    first = {"shards": "46", "one.lmdb": "44"}[name]

    ends, resumed = ended(pictures, tmp_path, name, "power", step, first=first)

    assert ends > 25 // step
    assert resumed > 15 // step


@EVERY
@KINDS
def test_an_end_while_another_data_set_is_replaced(
    pictures: Path, tmp_path: Path, name: str, step: int
) -> None:
    """There is the old data set whole, the new one whole, or none; never parts of both as one."""
    ends, _ = ended(pictures, tmp_path, name, "power", step, old="30000")

    assert ends > 40 // step


SLOW = """
import sys
from fastdata.converters.pack import pack
print("begun", flush=True)
pack(sys.argv[1], sys.argv[2], shard_size=25_000)
"""


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("seed", range(10))
def test_kills_at_any_time(pictures: Path, tmp_path: Path, name: str, seed: int) -> None:
    """Ten packs are killed at random moments, up to three times each; then all end well."""
    pack(pictures, tmp_path / "fresh" / name, shard_size=25_000)
    dice = random.Random(seed)  # noqa: S311 (moments, not secrets)
    for turn in range(10):
        folder = tmp_path / f"{turn}"
        command = [sys.executable, "-c", SLOW, str(pictures), str(folder / name)]
        for _ in range(dice.randint(1, 3)):
            with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                child.stdout.readline()
                try:
                    child.wait(dice.uniform(0.0, 0.12))
                except subprocess.TimeoutExpired:
                    child.kill()

        pack(pictures, folder / name, shard_size=25_000)

        assert originals(folder) == originals(tmp_path / "fresh")
