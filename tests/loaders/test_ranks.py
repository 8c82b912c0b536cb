"""Real processes: ranks of torch.distributed, interrupts, abandoned epochs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fastdata as fd

# Worlds of ranks, one after the other: each goes on from the state that the one before ended with.
_RANKS = """
import json, os, sys, torch, traceback, torch.distributed as dist, fastdata as fd
torch.set_num_threads(1)
path, folder, worlds = json.loads(sys.argv[1])

def run(rank, store, world, size, stop, state):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    dist.barrier()  # a rank without batches would else leave while others still connect to it
    crop = fd.RandomResizedCrop(16, flip=0.5)
    loader = fd.Loader(path, size, crop=crop, drop_last=False, threads=1, prefetch=3)
    if state is not None:
        loader.load_state_dict(state)
    steps, ids = 0, []
    for batch in loader:
        total = torch.tensor([len(batch.ids), 1])
        dist.all_reduce(total)  # hangs, were there a rank without this batch
        assert total.tolist() == [world * len(batch.ids), world]
        parts = [torch.zeros(len(batch.ids), 2, dtype=torch.int64) for _ in range(world)]
        sums = batch.images.sum((1, 2, 3), dtype=torch.int64)
        place = torch.where(batch.valid, torch.from_numpy(batch.ids), -1)
        dist.all_gather(parts, torch.stack([place, sums], 1))
        ids += [pair for pair in torch.stack(parts, 1).flatten(0, 1).tolist() if pair[0] >= 0]
        steps += 1
        if steps == stop:
            break
    assert stop or state is not None or steps == len(loader)
    if rank == 0:
        with open(f"{store}-found", "w") as file:
            json.dump([ids, loader.state_dict()], file)
    loader.close()
    dist.destroy_process_group()

found = [[None, None]]
for number, (world, *options) in enumerate(worlds):
    store = f"{folder}/{number}"
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(rank, store, world, *options, found[-1][1])
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    if any([os.waitpid(child, 0)[1] for child in children]):
        sys.exit(1)
    found.append(json.load(open(f"{store}-found")))
print(json.dumps(found[1:]))
"""

_INTERRUPTS = """
import os, random, signal, sys, time, fastdata as fd, torch, fastdata.loaders.loader
random.seed(0)
for number in range(int(sys.argv[2])):
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            kinds = {"prefetch": number % 4, "threads": 1 + number % 3}
            loader = fd.Loader(sys.argv[1], 4, crop=fd.RandomResizedCrop(128), **kinds)
            os.write(told, b"x")
            while True:
                for batch in loader:
                    pass
        except KeyboardInterrupt:
            loader.close()
            code = 0
        finally:
            os._exit(code)
    os.read(ready, 1)
    time.sleep(random.random() / 20)
    os.kill(child, signal.SIGINT)
    _, status = os.waitpid(child, 0)
    os.close(ready)
    os.close(told)
    assert status == 0, (number, status)
"""


def _run(code: str, *arguments: object) -> str:
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "dataset",
    ["shards", *(pytest.param(name, marks=pytest.mark.long) for name in ("folder", "lmdb_file"))],
    indirect=True,
)
def test_real_ranks_share_an_epoch(dataset: Path, tmp_path: Path) -> None:
    """Three processes, then two, then four, that meet in every step: each sample once, in order."""
    with fd.Loader(
        dataset, 23, crop=fd.RandomResizedCrop(16, flip=0.5), drop_last=False, threads=1
    ) as loader:
        (batch,) = loader
    sums = batch.images.long().sum((1, 2, 3)).tolist()
    expected = [list(pair) for pair in zip(batch.ids.tolist(), sums, strict=True)]

    worlds = [(3, 2, 2), (2, 3, 1), (4, 1, 0)]  # ranks, samples of a batch, steps; 0: all
    found = json.loads(_run(_RANKS, json.dumps([str(dataset), str(tmp_path), worlds])))

    assert [pair for seen, _ in found for pair in seen] == expected
    _, state = found[-1]
    assert (state["epoch"], state["samples"]) == (1, 0)


def test_interrupts_end_a_loader(shards: Path) -> None:
    """Interrupts at random moments: none is lost, and each ends the loop and its process."""
    _run(_INTERRUPTS, shards, 30)  # one that is lost lets a child run on, to the end of the time


def test_abandoned_epochs_leave_nothing(shards: Path) -> None:
    """After hundreds of epochs that were left, threads, files and memory are as they were."""
    code = (
        "import os, sys, threading, fastdata as fd\n"
        "def facts():\n"
        "    memory = int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "    return threading.active_count(), len(os.listdir('/proc/self/fd')), memory\n"
        "crop = fd.RandomResizedCrop(64)\n"
        "loader = fd.Loader(sys.argv[1], 4, crop=crop, threads=2)\n"
        "for number in range(400):\n"
        "    for batch in loader:\n"
        "        break\n"
        "    if number == 150:\n"
        "        before = facts()\n"
        "after = facts()\n"
        "assert after[:2] == before[:2], (before, after)\n"
        "assert after[2] - before[2] < 8 << 20, (before, after)\n"
        "loader.close()\n"
        "for number in range(40):\n"
        "    with fd.Loader(sys.argv[1], 4, crop=crop, threads=2) as loader:\n"
        "        next(iter(loader))\n"
        "assert facts()[:2] <= before[:2], (before, facts())\n"
        "assert not [name for name in os.listdir('/dev/shm') if str(os.getpid()) in name]\n"
    )
    _run(code, shards)


_EARLY = """
import os, sys, torch.distributed as dist, fastdata as fd
crop = fd.RandomResizedCrop(8)
early = fd.Loader(sys.argv[1], 2, crop=crop)
meant = fd.Loader(sys.argv[1], 2, crop=crop, ranks=fd.Ranks(0, 1))
waiting, done = os.pipe()
child = os.fork()
store = f"file://{sys.argv[2]}"
dist.init_process_group("gloo", init_method=store, rank=int(child == 0), world_size=2)
if child == 0:
    os.close(done)
    os.read(waiting, 1)  # to leave at once would break the connection that the other still makes
    os._exit(0)
try:
    iter(early)
except fd.errors.OptionError as error:
    assert "rank 0 of 1" in str(error), error
else:
    raise AssertionError
next(iter(meant))
os.close(done)
os.waitpid(child, 0)
"""


def test_a_loader_made_too_early_says_so(shards: Path, tmp_path: Path) -> None:
    """A loader made before its rank was known would give each rank all samples: an error."""
    _run(_EARLY, shards, tmp_path / "store")
