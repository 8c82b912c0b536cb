"""Trains in several processes: ``python rank_main.py JSON``; prints what each rank found.

The JSON has ``path``, ``val``, ``world``, ``port`` and ``runs``: one after the other, each with
its ``recipe``, ``network`` and ``options``, and perhaps ``end``: a rank, a step, and how it ends.
"""

import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from typing import Any

import torch
from training import plain_network, recipe, train, weights

from fastdata.errors import FastdataError
from fastdata.train.step import TrainStep


def _run(path: str, val: str, rank: int, run: dict[str, Any]) -> dict[str, Any]:
    """One run of one rank, as JSON."""
    network = plain_network(**run["network"])
    steps = 0
    call = TrainStep._update

    def update(self: TrainStep, lr: float) -> None:
        nonlocal steps
        call(self, lr)
        steps += lr > 0  # not the warm-up's
        if run.get("end") and run["end"][:2] == [rank, steps]:
            if run["end"][2] == "error":
                raise FastdataError("the storage of this rank burns")
            os.kill(os.getpid(), signal.Signals[run["end"][2]])

    TrainStep._update = update  # type: ignore[method-assign]
    try:
        report = train(path, recipe(**run["recipe"]), val=val, network=network, **run["options"])
    except FastdataError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        TrainStep._update = call  # type: ignore[method-assign]
    epochs = [asdict(epoch) for epoch in report.epochs]
    return {"epochs": epochs, "lr": report.lr, "weights": weights(network).tolist()}


def main() -> int:
    """Fork the ranks; 0 if each of them came to an end."""
    torch.set_num_threads(1)
    task = json.loads(sys.argv[1])
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(task["port"]), WORLD_SIZE=str(task["world"])
    )
    children = []
    for rank in range(task["world"]):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
                found = [_run(task["path"], task["val"], rank, run) for run in task["runs"]]
                line = json.dumps({"rank": rank, "runs": found}) + "\n"
                os.write(1, line.encode())
                code = 0
            except BaseException:  # noqa: BLE001  a forked child must not go on into pytest
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    codes = []
    for _ in children:
        child, status = os.wait()
        children.remove(child)
        codes.append(status)
        if task.get("end_stopped"):  # a rank that was stopped does not end by itself
            for other in children:
                os.kill(other, signal.SIGKILL)
    if any(codes):
        sys.stderr.write(f"wait statuses {codes}\n")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
