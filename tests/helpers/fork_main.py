"""A program of tests/loaders/test_fork.py: forks children while a loader has batches in flight."""

import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import transforms
from torch.utils.data import DataLoader

import fastdata as fd
from fastdata.errors import OptionError

_LIMIT = 240.0  # seconds; it only ends what hangs
_DONE = 7  # exit code of a child that did all it was to do
_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "threads": {"transform": transforms.invert},
    "processes": {"transform": transforms.invert, "workers": 2},
    "dali": {},
}


class Child:
    """What a forked child may do to a loader that it inherits, before it ends as programs do."""

    def __init__(self, loader: fd.Loader | fd.DALILoader, batches: Iterator[fd.Batch]) -> None:
        """Only the child refers to the two, so that it can let go of them."""
        self.loader = loader
        self.batches = batches

    def leave(self) -> None:
        """Nothing."""

    def drop(self) -> None:
        """Let go of it."""
        del self.loader, self.batches

    def close(self) -> None:
        """Close it, as a with statement does whose body a child leaves."""
        self.loader.close()
        self.loader.close()

    def use(self) -> None:
        """Whatever needs the threads is an error that says why there are none."""
        uses: list[Callable[[], object]] = [
            lambda: next(self.batches),
            lambda: iter(self.loader),
            lambda: self.loader.load_state_dict(self.loader.state_dict()),
        ]
        for use in uses:
            with pytest.raises(OptionError, match="fork"):
                use()

    def make(self) -> None:
        """A loader of its own works."""
        with fd.Loader(self.loader.source.path, 8, shuffle=False, threads=2) as loader:
            assert sum(len(batch.labels) for batch in loader) == len(loader.source)

    def pack(self) -> None:
        """So does packing."""
        path = self.loader.source.path
        packed = fd.pack(path, path.with_name(f"{path.name}-{os.getpid()}"), workers=2)
        assert packed.samples == len(self.loader.source)


def _forked(child: Child, action: Callable[[Child], None]) -> int:
    """Process id of a child that does something."""
    process = os.fork()
    if process == 0:
        action(child)
        sys.exit(_DONE)
    return process


def _wait(process: int) -> None:
    """It does what it is to do, and ends."""
    end = time.monotonic() + _LIMIT
    while (found := os.waitpid(process, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            sys.exit(f"a child did not end within {_LIMIT} s")
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(found[1])
    if code != _DONE:
        sys.exit(f"a child ended with {code}")


def main(path: str, kind: str) -> None:
    """Fork children of each sort in the midst of a pass, which stays whole."""
    gc.freeze()  # what is imported need not be looked through at the end of each child
    make = fd.DALILoader if kind == "dali" else fd.Loader
    loader = make(path, 8, crop=fd.RandomResizedCrop(64), threads=2, **_OPTIONS[kind])
    batches = iter(loader)
    seen = 0
    seen += len(next(batches).labels)
    child = Child(loader, batches)
    for process in [_forked(child, action) for action in _ACTIONS]:
        _wait(process)
    del child

    seen += len(next(batches).labels)
    context = multiprocessing.get_context("fork")
    user = context.Process(target=Child(loader, batches).use)
    user.start()
    user.join(_LIMIT)
    assert user.exitcode == 0, user.exitcode

    seen += len(next(batches).labels)
    samples = DataLoader(
        fd.open(path, transform=_label),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="fork",
        timeout=_LIMIT,
    )
    assert len(list(samples)) == len(loader.source)

    seen += sum(len(batch.labels) for batch in batches)
    assert seen == len(loader) * 8, seen
    loader.close()


_ACTIONS = (Child.leave, Child.drop, Child.close, Child.use, Child.make, Child.pack)


def _label(sample: Any) -> int:
    return int(sample.label)


if __name__ == "__main__":
    main(*sys.argv[1:])
