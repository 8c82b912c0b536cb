"""The examples in examples/, on two processes where they can: who gets what, and resumed runs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import fastdata as fd

_EXAMPLES = ROOT / "examples"
_SMALL = "shufflenet_v2_x0_5"

# Runs programs one after the other, each on forked ranks with the environment that torchrun gives,
# and writes down the ids that every rank's loader hands out: a file a run and rank. Importing torch
# and the trainers once for all of them is most of the time saved.
_LAUNCH = """
import importlib, json, os, runpy, socket, sys, traceback
import torch, torchvision, fastdata as fd, fastdata.loaders.loader as loader
world, log, modules, programs = json.loads(sys.argv[1])
for name in modules:
    importlib.import_module(name)
Loader = loader.Loader

class Recorder(Loader):
    def __iter__(self):
        def record(batch):
            print(json.dumps(batch.ids.tolist()), file=file, flush=True)
            return batch
        return map(record, super().__iter__())

def run(rank, port, program):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world,
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    if world > 1:
        os.environ.update({name: str(value) for name, value in names.items()})
        os.environ["TORCHELASTIC_RUN_ID"] = "test"
    torch.set_num_threads(1)
    fd.Loader = Recorder
    sys.argv = program
    runpy.run_path(program[0], run_name="__main__")

for number, program in enumerate(programs):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with open(f"{log}-{number}-{rank}", "w") as file:
                    run(rank, port, program)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        sys.exit(1)
"""


def launch(folder: Path, world: int, modules: list[str], *programs: list[object]) -> str:
    """Run programs in turn, each on so many ranks; what they said.

    The ids that rank r of run n was handed out are in ``folder / "ids-n-r"``.
    """
    texts = [[str(part) for part in program] for program in programs]
    given = json.dumps([world, str(folder / "ids"), modules, texts])
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LAUNCH, given],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def handed_out(folder: Path, run: int, rank: int) -> list[list[int]]:
    """Ids of the batches of a rank in a run."""
    lines = (folder / f"ids-{run}-{rank}").read_text().splitlines()
    return [json.loads(line) for line in lines]


def expected(path: Path, size: int, steps: int) -> list[list[int]]:
    """Ids of so many global batches, by a single process."""
    found: list[list[int]] = []
    with fd.Loader(path, size, crop=fd.RandomResizedCrop(8), threads=1) as loader:
        while len(found) < steps:
            found += [batch.ids.tolist() for batch in loader]
    return found[:steps]


@pytest.mark.parametrize(
    ("example", "module", "options", "checkpoint"),
    [
        ("ddp.py", "torchvision", ["--model", _SMALL], "checkpoint.pt"),
        pytest.param(
            "timm_fit.py",
            "timm",
            ["--model", "test_resnet", "--device", "cpu"],
            "checkpoint.pt",
            marks=pytest.mark.check,
        ),
        pytest.param(
            "accelerate_fit.py",
            "accelerate",
            ["--model", _SMALL, "--cpu"],
            "checkpoint",
            marks=pytest.mark.check,
        ),
        pytest.param(
            "lightning_fit.py",
            "lightning",
            ["--model", _SMALL, "--accelerator", "cpu", "--devices", 2],
            "checkpoints/last.ckpt",
            marks=pytest.mark.check,
        ),
    ],
)
def test_two_ranks_share_and_resume(
    example: str, module: str, options: list[object], checkpoint: str, shards: Path, tmp_path: Path
) -> None:
    """Ranks get their halves of every global batch, no sample twice, and go on in mid-epoch."""
    pytest.importorskip("torchvision")
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    program = [_EXAMPLES / example, shards, "--size", 32, "--batch-size", 2, *options]

    said = launch(
        tmp_path,
        2,
        [module],
        [*program, "--steps", 7],  # five steps an epoch: 23 samples in batches of 4
        [*program, "--steps", 12, "--resume", checkpoint],
    )

    batches = expected(shards, 4, 12)
    assert len({number for batch in batches[:5] for number in batch}) == 20
    for rank in range(2):
        mine = [batch[rank::2] for batch in batches]
        assert handed_out(tmp_path, 0, rank) == mine[:7]
        assert handed_out(tmp_path, 1, rank) == mine[7:], said


@pytest.mark.check
def test_transforms_resume_exactly(shards: Path, tmp_path: Path) -> None:
    """Runs stopped in mid-epoch and at its end have the weights of one that was not, to the bit."""
    torch = pytest.importorskip("torch")
    for name in ("torchvision", "torchdata"):
        pytest.importorskip(name)
    program = [_EXAMPLES / "dataloader_transforms.py", shards, "--size", 32, "--batch-size", 5]
    program += ["--workers", 2, "--model", _SMALL]

    launch(
        tmp_path,
        1,
        ["torchdata.stateful_dataloader"],
        [*program, "--steps", 9, "--checkpoint", "whole.pt"],
        [*program, "--steps", 2, "--checkpoint", "a.pt"],
        [*program, "--steps", 5, "--checkpoint", "b.pt", "--resume", "a.pt"],  # an epoch's last
        [*program, "--steps", 9, "--checkpoint", "c.pt", "--resume", "b.pt"],
    )

    whole, parts = (torch.load(tmp_path / name, weights_only=True) for name in ("whole.pt", "c.pt"))
    assert whole["model"].keys() == parts["model"].keys()
    for name, weight in whole["model"].items():
        assert torch.equal(weight, parts["model"][name]), name


_PREPARED = """
import sys, torch, fastdata as fd
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

def number(sample):
    return sample.id

accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
loader = fd.Loader(sys.argv[1], 2, crop=fd.RandomResizedCrop(8))
assert accelerator.prepare(loader) is loader

data = fd.open(sys.argv[1], transform=number, ranks=fd.Ranks(0, 1))
prepared = accelerator.prepare(DataLoader(data, batch_size=4))
seen = torch.cat([accelerator.gather(batch) for batch in prepared])
assert sorted(set(seen.tolist())) == list(range(23))

data = fd.open(sys.argv[1], transform=number)
plain = DataLoader(data, batch_size=4)
assert [n for batch in plain for n in batch.tolist()] == list(range(rank, 23, 2))

accelerator.dataloader_config = DataLoaderConfiguration(dispatch_batches=False)
for context in (None, "fork", "spawn"):
    workers = 0 if context is None else 1
    twice = DataLoader(data, 4, num_workers=workers, multiprocessing_context=context)
    try:
        list(accelerator.prepare(twice))
    except fd.errors.OptionError as error:
        assert "do not prepare" in str(error), error
    else:
        raise AssertionError(context)
accelerator.end_training()
"""


def test_accelerate_shares_once(shards: Path, tmp_path: Path) -> None:
    """``prepare`` leaves our loader alone; a data set that would be shared out twice says so."""
    pytest.importorskip("torchvision")
    pytest.importorskip("accelerate")
    program = tmp_path / "prepared.py"
    program.write_text(_PREPARED)

    launch(tmp_path, 2, ["accelerate"], [program, shards])
