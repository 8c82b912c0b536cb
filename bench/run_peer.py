"""Run one loader in a process of its own, for ``loaders.py``.

    python run_peer.py prepare|measure JOB

The last line of its output is its answer, in JSON.
"""

import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from images import jpegs
from peers import PEERS, Job


def main() -> None:
    """Do one job."""
    verb, job = sys.argv[1], Job.from_json(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
    answer = _prepare(job) if verb == "prepare" else _measure(job)
    print(json.dumps(answer), flush=True)


def _prepare(job: Job) -> dict[str, Any]:
    """Make the peer's form of the images."""
    shutil.rmtree(job.form, ignore_errors=True)
    job.form.mkdir()
    _peer(job).prepare(job)
    return {}


def _measure(job: Job) -> dict[str, Any]:
    """Read all files into the cache, then load; return images per second and more."""
    files = [path for path in _read_folder(job).rglob("*") if path.is_file()]
    size = sum(len(path.read_bytes()) for path in files)
    images = sum(1 for _ in jpegs(job.images))
    begun = time.perf_counter()
    window = Window(job)
    for epoch in _peer(job).epochs(job):
        if window.passes(epoch):
            break
    return {
        "rate": window.images / window.elapsed,
        "kB/image": round(size / images / 1000, 1),
        "gives": window.gives,
        "mean": window.mean,
        "first_batch_s": round(window.first - begun, 2),
    }


class Window:
    """Counts images within epochs.

    In each epoch the clock starts once every worker has delivered a batch, and stops with the last
    batch: what a loader loses between epochs is not counted, since real epochs are long.
    """

    def __init__(self, job: Job) -> None:
        """Start at zero."""
        self.images = 0
        self.elapsed = 0.0
        self.first = 0.0
        self.gives = ""
        self.mean = 0.0
        self._job = job

    def passes(self, epoch: Iterable[Any]) -> bool:
        """Load one epoch; return whether the job's time is over."""
        last = None
        for number, images in enumerate(epoch, 1):
            now = time.perf_counter()
            if last is not None:
                self.images += len(images)
                self.elapsed += now - last
                if self.elapsed >= self._job.seconds:
                    return True
            if not self.first:
                self._look(images)
                self.first = now
            if number >= self._job.threads and now - self.first >= self._job.warm_up:
                last = now
        return False

    def _look(self, images: Any) -> None:
        """Facts of a batch, checked: every peer must deliver as many pixels, and none blank."""
        job = self._job
        if images.numel() != job.batch * job.size * job.size * 3:
            raise ValueError(f"{job.name}: a batch of shape {tuple(images.shape)}")
        self.gives = f"{str(images.dtype).removeprefix('torch.')} {tuple(images.shape)}"
        self.mean = round(images.double().mean().item(), 1)


def _peer(job: Job) -> Any:
    return importlib.import_module(f"peers.{PEERS[job.name].module}")


def _read_folder(job: Job) -> Path:
    """The folder that the peer reads."""
    return job.form if PEERS[job.name].prepares else job.images


if __name__ == "__main__":
    main()
