"""The share of the ceiling: what its runs are, and what they tell."""

import dataclasses
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from fastdata.batch.batch import Batch
from fastdata.bench import CeilingReport, bench_ceiling, page_cache
from fastdata.bench.render import render_ceiling
from fastdata.errors import OptionError
from fastdata.train import ranks
from fastdata.train.ceiling import measure_ceiling
from fastdata.train.recipe import Recipe
from fastdata.train.results import Round
from fastdata.train.step import TrainStep

CPU = torch.device("cpu")


# Powers of two add up exactly.
STEP, NEXT = 2.0**-6, 2.0**-4


class _Clock(threading.local):
    """A clock that each thread has for itself, and that moves only when it is told to."""

    passed = computed = 0.0

    def perf_counter(self) -> float:
        return self.passed

    def thread_time(self) -> float:
        return self.computed

    def wait(self, seconds: float) -> None:
        """Let time pass in which the calling thread has nothing to do."""
        self.passed += seconds

    def compute(self, seconds: float) -> None:
        """Let time pass in which the calling thread is busy."""
        self.passed += seconds
        self.computed += seconds


class _Timed(nn.Module):
    """Takes ``STEP`` seconds of a clock."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self._clock.compute(STEP)
        return images


def _step(clock: _Clock) -> TrainStep:
    torch.manual_seed(0)
    network = nn.Sequential(_Timed(clock), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    return TrainStep(Recipe(), network, CPU)


class _Loader:
    """Counts the batches that are taken from it, and by which threads."""

    def __init__(self, before: Callable[[int], object] = lambda _: None) -> None:
        self.taken = 0
        self.threads: set[int] = set()
        self._before = before

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(10):
            self._before(self.taken)
            self.taken += 1
            self.threads.add(threading.get_ident())
            images, labels = torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
            yield Batch(images, labels, np.arange(4), torch.ones(4, dtype=torch.bool), _no_keys)


def _no_keys(ids: object) -> list[str]:
    return []


def _fail_at(number: int) -> Callable[[int], None]:
    def fail(taken: int) -> None:
        if taken == number:
            raise OSError("the disk is gone")

    return fail


def test_spinning_takes_as_many_batches_as_the_steps() -> None:
    """Real and spinning runs take a batch for each step, resident ones none; the thread ends."""
    before = set(threading.enumerate())
    clock, loader = _Clock(), _Loader()
    seconds = 5 * 3 * 4 * STEP  # four steps in each run, one of them untimed
    found = measure_ceiling(
        _step(clock), loader, seconds=seconds, rounds=5, spinning=True, clock=clock
    )

    assert found.steps == 3
    # 1 kept, 3 in each trial, 4 in each real run; the thread may end with some not yet taken
    least, most = 1 + 3 + 5 * 4, 1 + 2 * 3 + 2 * 5 * 4
    assert least < loader.taken <= most
    assert len(loader.threads) > 1
    assert set(threading.enumerate()) == before
    assert found.rounds == (Round(4 / STEP, 4 / STEP, 4 / STEP),) * 5
    assert found.spinning_images_per_second == 4 / STEP


def test_without_spinning_there_is_no_other_thread() -> None:
    """The run of training measures two things, in the thread that trains."""
    clock, loader = _Clock(), _Loader()
    found = measure_ceiling(_step(clock), loader, seconds=1.0, clock=clock)

    assert loader.threads == {threading.get_ident()}
    assert found.spinning_images_per_second is None
    assert all(r.spinning is None for r in found.rounds)


@pytest.mark.parametrize("number", [2, 4, 6, 9])
def test_loader_that_fails(number: int) -> None:
    """An error of the loader ends the measurement with that error, whichever run it comes in."""
    before = set(threading.enumerate())
    clock, loader = _Clock(), _Loader(_fail_at(number))
    with pytest.raises(OSError, match="the disk is gone"):
        measure_ceiling(_step(clock), loader, seconds=0.5, spinning=True, clock=clock)

    assert set(threading.enumerate()) == before


def test_waiting_is_told_from_interference() -> None:
    """A loader that waits costs real runs their time in next(), and the spinning ones nothing."""
    clock = _Clock()
    loader = _Loader(lambda _: clock.wait(NEXT))
    found = measure_ceiling(_step(clock), loader, seconds=1.0, spinning=True, clock=clock)

    assert found.real_images_per_second == 4 / (NEXT + STEP)
    assert found.resident_images_per_second == found.spinning_images_per_second == 4 / STEP
    assert found.share == STEP / (NEXT + STEP)
    assert found.wait_share == NEXT / (NEXT + STEP)
    assert found.loader_share == 0


def test_computing_in_next_is_the_loaders_share() -> None:
    """What the training thread computes inside next() is counted as such."""
    clock = _Clock()
    loader = _Loader(lambda _: clock.compute(NEXT))
    found = measure_ceiling(_step(clock), loader, seconds=1.0, clock=clock)

    assert found.loader_share == found.wait_share == NEXT / (NEXT + STEP)


def test_ranks_make_equally_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of steps follows from the mean of what steps take on all ranks."""
    clock = _Clock()
    step = _step(clock)
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    # another rank needs 19 seconds for a step of each run, and makes 19 images a second
    monkeypatch.setattr(ranks, "all_sum", lambda value: value + 19.0)
    mean = (2 * STEP + 19) / 2
    found = measure_ceiling(step, _Loader(), seconds=5 * 3.5 * mean, clock=clock)

    assert found.steps == 3
    assert found.real_images_per_second == 4 / STEP + 19


@pytest.fixture(scope="module")
def report(shards: Path) -> CeilingReport:
    """The ceiling of a small model on small images."""
    recipe = Recipe(model="squeezenet1_1", size=32, batch_size=4)
    told: list[tuple[str, int, int]] = []
    found = bench_ceiling(
        shards, recipe, device="cpu", threads=1, seconds=1.0, progress=lambda *at: told.append(at)
    )
    assert ("rounds", 5, 5) in told
    return found


def test_report_has_every_figure(report: CeilingReport) -> None:
    """There are five rounds of three runs, a cold pass, and the cost to the machine."""
    assert len(report.ceiling.rounds) == 5
    assert all(min(r.real, r.resident, r.spinning or 0) > 0 for r in report.ceiling.rounds)
    assert report.cold is not None
    assert report.cold.images_per_second > 0
    assert 1 <= report.cold.steps <= 5  # a pass over 23 images, 4 a step
    assert 0 < report.cpu_share <= 1.5
    assert report.peak_memory_bytes > 1 << 20
    assert report.gpu_utilization is None
    for share in (report.from_storage, report.cold.from_storage):
        assert share is None or 0 <= share <= 1


def test_report_is_json(report: CeilingReport) -> None:
    """The whole report survives the way through JSON."""
    found = json.loads(json.dumps(dataclasses.asdict(report)))

    assert found["ceiling"]["share"] == report.ceiling.share
    assert found["model"] == "squeezenet1_1"


def test_table_tells_shares_and_the_cache(report: CeilingReport) -> None:
    """The table has the share with its spread, each speed, and whether the cache was warm."""
    known = dataclasses.replace(report, from_storage=0.0)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render_ceiling(known))
    text = console.export_text()

    for part in ("share of the ceiling", "real data", "resident batch", "interference", "warm"):
        assert part in text
    assert f"{report.ceiling.share:.1%}" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rounds": 0}, "rounds must be 1 or more"),
        ({"seconds": 0.0}, "seconds must be a positive number"),
        ({"recipe": Recipe(model="resnet81", batch_size=4)}, "unknown model 'resnet81'"),
        ({"recipe": Recipe(amp="fp16", size=32, batch_size=4)}, "needs a CUDA device"),
        ({"device": "cuda:99"}, "cuda:99"),
    ],
)
def test_bad_options(shards: Path, options: dict[str, object], text: str) -> None:
    """Each argument out of range is one error that names it."""
    given: dict[str, object] = {"recipe": Recipe(size=32, batch_size=4), "device": "cpu"}
    with pytest.raises(OptionError, match=text):
        bench_ceiling(shards, **(given | options))  # type: ignore[arg-type]


def test_data_without_labels(tmp_path: Path, folder: Path) -> None:
    """A flat folder has no labels to train on, which is one error."""
    for image in islice(folder.rglob("*.jpg"), 6):
        (tmp_path / image.name).write_bytes(image.read_bytes())
    with pytest.raises(OptionError, match="has no labels to train on"):
        bench_ceiling(tmp_path, Recipe(size=32, batch_size=4), device="cpu")


def test_files_are_forgotten_and_read_again(shards: Path) -> None:
    """Neither forgetting nor warming changes a byte, and warming reads all of them."""
    before = {path: path.read_bytes() for path in page_cache.files(shards)}
    told: list[tuple[int, int]] = []
    page_cache.evict(shards)

    assert page_cache.warm(shards, lambda *at: told.append(at))
    size = sum(map(len, before.values()))
    assert told[-1] == (size, size)
    assert {path: path.read_bytes() for path in page_cache.files(shards)} == before


def test_files_that_do_not_fit_are_not_read(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory has no room for the files, none of them is read."""
    monkeypatch.setattr(page_cache, "_available_memory", lambda: 1000)

    assert not page_cache.warm(shards, lambda *at: pytest.fail(f"read {at}"))


_TWO_RANKS = """
import dataclasses, json, os, sys, time, traceback
import numpy as np, torch, torch.distributed as dist
from torch import nn
from fastdata.batch.batch import Batch
from fastdata.train.ceiling import measure_ceiling
from fastdata.train.recipe import Recipe
from fastdata.train.step import TrainStep
torch.set_num_threads(1)

class Loader:
    def __iter__(self):
        while True:
            time.sleep(0.01 * dist.get_rank())
            images, labels = torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
            yield Batch(images, labels, np.arange(4), torch.ones(4, dtype=torch.bool), list)

def run(rank):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    step = TrainStep(Recipe(), network, torch.device("cpu"))
    found = measure_ceiling(step, Loader(), seconds=0.5, spinning=True)
    with open(f"{sys.argv[1]}.{rank}", "w") as file:
        json.dump([found.steps, [dataclasses.astuple(r) for r in found.rounds]], file)
    dist.destroy_process_group()

children = []
for rank in range(2):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run(rank)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_ranks_of_different_speed(tmp_path: Path) -> None:
    """Ranks whose loaders differ in speed make equally many steps, and agree on what they found."""
    store = tmp_path / "store"
    command = [sys.executable, "-W", "ignore", "-c", _TWO_RANKS, str(store)]
    done = subprocess.run(command, timeout=240, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    first, second = (json.loads(Path(f"{store}.{rank}").read_text()) for rank in range(2))
    assert first == second
