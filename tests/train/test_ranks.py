"""Several processes train as one."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from places import HELPERS
from torch import nn
from training import colours, plain_network, recipe, train, weights

from fastdata.train import TrainReport


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """26 pictures in 2 classes and a class of its own."""
    return colours(tmp_path_factory.mktemp("data") / "train", 9)


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 others: no batch of them is whole on both ranks."""
    return colours(tmp_path_factory.mktemp("data") / "val", 5, seed=1)


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _run(
    recipe: dict[str, Any], network: dict[str, Any] | None = None, end: list[Any] | None = None,
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    return {"recipe": recipe, "network": network or {}, "end": end, "options": options}


def _ranks(
    data: Path, val: Path, *runs: dict[str, Any], world: int = 2, whole: bool = True, **more: Any
) -> list[list[dict[str, Any]]]:
    """What each rank that came to an end found in each run."""
    task = {"path": str(data), "val": str(val), "world": world, "port": _port(), "runs": runs}
    done = subprocess.run(
        [sys.executable, str(HELPERS / "rank_main.py"), json.dumps(task | more)],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0 or not whole, done.stderr
    lines = sorted((json.loads(line) for line in done.stdout.splitlines()), key=_rank)
    return [line["runs"] for line in lines]


def _rank(line: dict[str, Any]) -> int:
    return int(line["rank"])


def _alone(data: Path, val: Path, switches: dict[str, Any]) -> tuple[TrainReport, nn.Module]:
    """The same run in this process."""
    network = plain_network()
    return train(data, recipe(**switches), val=val, network=network), network


_SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"accumulate": 3},
    "clipped": {"clip": 0.1, "lr": 0.1},
    "adamw": {"optimizer": "adamw", "lr": 0.001, "ema": 0.8, "label_smoothing": 0.1},
}
_MIXED = {"batch_size": 2, "mixup": 0.2, "ema": 0.9}
_RANDOM = {"drop": 0.5, "norm": True}


@pytest.fixture(scope="module")
def together(data: Path, val: Path) -> dict[str, list[dict[str, Any]]]:
    """What two ranks find with batches of 2, by the name of the run."""
    runs = [_run({"batch_size": 2, **switches}) for switches in _SWITCHES.values()]
    first, second = _ranks(data, val, *runs, _run(_MIXED, _RANDOM))
    return {name: [first[n], second[n]] for n, name in enumerate([*_SWITCHES, "mixed"])}


@pytest.mark.parametrize("name", _SWITCHES)
def test_two_ranks_equal_one_process(
    name: str, data: Path, val: Path, together: dict[str, list[dict[str, Any]]]
) -> None:
    """Two ranks go the way of one process with the doubled batch, within rounding."""
    report, network = _alone(data, val, {"batch_size": 4, **_SWITCHES[name]})

    for rank in together[name]:
        assert rank["lr"] == report.lr
        for found, expected in zip(rank["epochs"], report.epochs, strict=True):
            assert found["loss"] == pytest.approx(expected.loss, rel=1e-5)
            assert found["train_accuracy"] == expected.train_accuracy
            assert found["val_accuracy"] == expected.val_accuracy
        torch.testing.assert_close(
            torch.tensor(rank["weights"], dtype=torch.float64), weights(network),
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip


@pytest.mark.parametrize("name", _SWITCHES)
def test_ranks_agree(name: str, together: dict[str, list[dict[str, Any]]]) -> None:
    """All ranks have the same weights to the bit, and report the same figures."""
    first, second = together[name]

    assert first["weights"] == second["weights"]
    assert [e["loss"] for e in first["epochs"]] == [e["loss"] for e in second["epochs"]]


def test_ranks_resume(
    data: Path, val: Path, together: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Ranks that one of them ended, then a signal, go on to the same weights and figures.

    They are the same to the bit, though the ranks' random numbers differ from each other.
    The others' error says that a rank is gone, its own what happened to it.
    """
    saved: dict[str, Any] = {
        "checkpoint": str(tmp_path / "run.pt"),
        "checkpoint_every": 1,
        "timeout": 120,
    }

    whole = together["mixed"]
    failed = _ranks(data, val, _run(_MIXED, _RANDOM, [1, 4, "error"], **saved))
    stopped = _run(_MIXED, _RANDOM, [1, 1, "SIGTERM"], resume=True, **saved)
    assert not _ranks(data, val, stopped, whole=False)  # both ranks end as the signal has it
    (resumed, other) = _ranks(data, val, _run(_MIXED, _RANDOM, resume=True, **saved))

    assert failed[1][0]["error"] == "FastdataError: the storage of this rank burns"
    assert failed[0][0]["error"].startswith("RankError: rank 0 of 2: another rank ended")
    for found, expected in zip(resumed[0]["epochs"], whole[0]["epochs"], strict=True):
        assert found | {"images_per_second": 0} == expected | {"images_per_second": 0}
    assert resumed[0]["weights"] == whole[0]["weights"]
    assert [e["loss"] for e in other[0]["epochs"]] == [e["loss"] for e in whole[0]["epochs"]]


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_rank_that_is_gone(how: str, data: Path, val: Path) -> None:
    """The others end with an error within the timeout when a rank dies, or no longer answers."""
    task = _run({"batch_size": 2, "epochs": 9}, None, [1, 3, how], timeout=4)
    (first,) = _ranks(data, val, task, whole=False, end_stopped=how == "SIGSTOP")

    assert first[0]["error"].startswith("RankError: rank 0 of 2: another rank ended or does not")


def test_ranks_that_do_not_come(data: Path, val: Path) -> None:
    """A rank that is alone where two are announced gives up within the timeout."""
    code = "import sys; sys.argv[1:1] = ['train']; from fastdata.cli import main; main()"  # as -m
    done = subprocess.run(
        [sys.executable, "-c", code, str(data), "--device", "cpu", "--timeout", "2"],
        capture_output=True, text=True, check=False, timeout=240,
        env={
            "PATH": "/usr/bin:/bin", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port()),
        },
    )  # fmt: skip

    assert done.returncode == 2
    assert "the ranks did not find each other" in done.stderr


def test_torchrun(data: Path, val: Path, tmp_path: Path) -> None:
    """Under torchrun the command trains on all ranks, and one of them speaks."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-port", str(_port()), "-m", "fastdata", "train", str(data)),
            *("--val", str(val), "--size", "32", "--batch-size", "4", "--device", "cpu"),
            *("--model", "mobilenet_v3_small", "--ceiling-seconds", "0.1", "--threads", "1"),
            *("--checkpoint", str(tmp_path / "run.pt"), "--json"),
        ],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("{")]
    report = json.loads(line)
    assert (report["world_size"], report["recipe"]["batch_size"]) == (2, 4)
    assert len(report["ceiling"]["rounds"]) == 5
    assert (tmp_path / "run.pt").exists()
