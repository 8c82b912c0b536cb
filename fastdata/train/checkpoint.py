"""Checkpoints: everything that a run needs to resume as if it had never stopped."""

import dataclasses
import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import torch

from fastdata.batch.source import Source
from fastdata.errors import DestinationError, OptionError, StateError
from fastdata.loaders.loader import Loader
from fastdata.system.files import write_atomically
from fastdata.system.untrusted import open_regular
from fastdata.train import ranks
from fastdata.train.device import random_state, set_random_state
from fastdata.train.meter import PassMeter
from fastdata.train.recipe import Recipe, Setup
from fastdata.train.results import EpochResult
from fastdata.train.step import TrainStep

VERSION = 1

_PROBE = 1 << 12  # bytes of a trial write

_FIELDS = {
    "version": int,
    "run": dict,
    "step": int,
    "seconds": float,
    "epochs": list,
    "sums": torch.Tensor,
    "parts": dict,
    "loader": dict,
    "random": torch.Tensor,
}


@dataclass
class Position:
    """How far a run has come.

    Attributes:
        meter: Sums of the current epoch.
        step: Finished steps of the optimiser, over all epochs.
        seconds: Time spent in the current epoch.
        epochs: Figures of the finished epochs.
    """

    meter: PassMeter
    step: int = 0
    seconds: float = 0.0
    epochs: list[EpochResult] = field(default_factory=list)

    def finish_epoch(self, result: EpochResult, meter: PassMeter) -> None:
        """Move on to the next epoch, with an empty meter."""
        self.epochs.append(result)
        self.meter, self.seconds = meter, 0.0


class Checkpoints:
    """The checkpoint of a run: one file, which each new version replaces atomically."""

    def __init__(
        self,
        setup: Setup,
        *,
        run: Mapping[str, object],
        step: TrainStep,
        data: Loader,
    ) -> None:
        """Collect what a checkpoint consists of.

        Args:
            setup: Its ``checkpoint`` is the file, not None; with several nodes, in a shared folder.
            run: What a resumed run must have in common with this one: plain values by name.
            step: Its weights and optimiser are saved.
            data: Its position is saved.
        """
        assert setup.checkpoint is not None
        self._path = Path(setup.checkpoint)
        self._every = setup.checkpoint_every
        self._run = dict(run)
        self._step = step
        self._data = data

    def due(self, step: int) -> bool:
        """Whether a checkpoint is to be written after this step, within an epoch."""
        return self._every is not None and step % self._every == 0

    def write(self, at: Position) -> None:
        """Write a checkpoint. All ranks must call it; it returns when the file is on the disk.

        Raises:
            OSError: The file cannot be written; the previous checkpoint is kept.
        """
        device = self._step.device
        # Every rank has its own sums and random state; all else is the same on all of them.
        sums, random = ranks.gather(at.meter.sums()).cpu(), ranks.gather(random_state(device)).cpu()
        if ranks.rank() == 0:
            content = {
                "version": VERSION,
                "run": self._run,
                "step": at.step,
                "seconds": at.seconds,
                "epochs": [dataclasses.asdict(result) for result in at.epochs],
                "sums": sums,  # (ranks, 3)
                "parts": {name: part.state_dict() for name, part in self._step.parts().items()},
                "loader": self._data.state_dict(),
                "random": random,  # (ranks, B) uint8
            }
            write_atomically(self._path, lambda file: save(content, file, self._path))
        ranks.barrier(device)

    def restore(self, at: Position) -> None:
        """Restore step, loader, random state and ``at`` from the checkpoint.

        Raises:
            StateError: The file is damaged, or of another run; the message names the difference.
        """
        content = read(self._path)
        # The run is compared before the numbers, for the message to name what differs.
        _check_same(self._path, content["run"], self._run)
        if not _fits_together(content, len(self._data)):
            raise StateError(
                f"{self._path} is no checkpoint of this run: its steps, epochs, sums and position "
                "in the data contradict each other; use an older copy, or train from the start"
            )
        try:
            for name, part in self._step.parts().items():
                part.load_state_dict(content["parts"][name])
        except Exception as error:  # torch and optimisers raise all kinds
            raise StateError(f"{self._path} does not fit the model: {error}") from error
        self._data.load_state_dict(content["loader"])
        try:
            at.step, at.seconds = content["step"], content["seconds"]
            at.epochs[:] = [EpochResult(**result) for result in content["epochs"]]
            at.meter.restore(content["sums"][ranks.rank()])
            set_random_state(content["random"][ranks.rank()], self._step.device)
        except (TypeError, RuntimeError, ValueError, IndexError) as error:
            raise StateError(f"{self._path} is no checkpoint of this run: {error}") from error


def save(content: Mapping[str, Any], file: BinaryIO, path: Path) -> None:
    """Write a checkpoint's content to an open file.

    Raises:
        OSError: It cannot be written; ``path`` is named.
    """
    try:
        torch.save(content, file)
    except (OSError, RuntimeError) as error:
        # torch closes its archive even then, which raises a second error.
        reason = error if isinstance(error, OSError) else error.__context__
        if not isinstance(reason, OSError):
            raise
        raise OSError(reason.errno, reason.strerror, str(path)) from error


def prepare(setup: Setup, device: torch.device) -> bool:
    """Check that checkpoints can be written, before any work; return whether one can be resumed.

    Raises:
        DestinationError: There is a checkpoint and ``resume`` is off, or none can be written.
        OptionError: The folder does not exist, or not all ranks see the file.
    """
    if setup.checkpoint is None:
        return False
    path = Path(setup.checkpoint)
    # Ranks may see different file systems, so they compare what they see before any of them writes.
    if not path.parent.is_dir():
        raise OptionError(f"checkpoint: the folder {path.parent} does not exist; create it")
    if path.exists() and not setup.resume:
        raise DestinationError(f"{path} exists; set resume to continue from it, or remove it")
    seen = int(ranks.all_sum(torch.tensor(int(path.exists()), device=device)))
    if 0 < seen < ranks.world_size():
        raise OptionError(f"only {seen} of {ranks.world_size()} ranks see {path}; share its folder")
    reason = _why_not_written(path) if ranks.rank() == 0 else ""
    if int(ranks.all_sum(torch.tensor(int(bool(reason)), device=device))):
        raise DestinationError(
            f"checkpoint: {path} cannot be written: {reason or 'see the first rank'}; choose a "
            "file in another folder, or fix this one"
        )
    return seen > 0


class _Written(Exception):  # noqa: N818 - no error: it undoes the trial write
    pass


def _why_not_written(path: Path) -> str:
    """What keeps a checkpoint from being written, or empty; ``path`` itself is not changed."""

    def write(file: BinaryIO) -> NoReturn:
        file.write(bytes(_PROBE))
        file.flush()
        raise _Written

    try:
        write_atomically(path, write)
    except _Written:
        pass
    except OSError as error:
        return error.strerror or str(error)
    return ""


def identity(recipe: Recipe, model: str, source: Source, device: torch.device) -> dict[str, object]:
    """What a run and the checkpoint that it resumes from must have in common, by name."""
    return {
        **dataclasses.asdict(recipe),
        "model": model,
        "data set": source.fingerprint,
        "classes": list(source.classes),
        "number of ranks": ranks.world_size(),
        "kind of device": device.type,
    }


def read(path: Path) -> dict[str, Any]:
    """A checkpoint's content, on the CPU. Nothing in the file is executed.

    Raises:
        StateError: It is damaged, or no checkpoint of this version.
        OSError: It cannot be read.
    """
    try:
        with open_regular(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
            with zipfile.ZipFile(file) as archive:  # torch itself does not compare the CRC-32s
                packed = any(entry.compress_type for entry in archive.infolist())
                damaged = "its packing" if packed else archive.testzip()
            file.seek(0)
            content = None if damaged else torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # zipfile and torch raise all kinds
        raise StateError(f"{path} is no whole checkpoint: {type(error).__name__}") from error
    if damaged:
        raise StateError(
            f"{path} is damaged in {damaged}; use an older copy, or train from the start"
        )
    if not isinstance(content, dict) or content.keys() != _FIELDS.keys():
        raise StateError(f"{path} is no checkpoint of `fastdata train`, version {VERSION}")
    wrong = [name for name, kind in _FIELDS.items() if type(content[name]) is not kind]
    if wrong or content["version"] != VERSION:
        raise StateError(f"{path} is no checkpoint of `fastdata train`, version {VERSION}")
    return content


def _fits_together(content: Mapping[str, Any], batches: int) -> bool:
    """Whether the numbers of a checkpoint belong to one moment of this run.

    Args:
        content: The checkpoint's.
        batches: Batches in an epoch.
    """
    run, results, sums = content["run"], content["epochs"], content["sums"]
    steps, epoch = math.ceil(batches / run["accumulate"]), len(results)
    done = content["step"] - epoch * steps  # in the current epoch
    taken = min(done * run["accumulate"], batches)
    images = taken * run["batch_size"]  # on each rank
    position = (epoch, images * ranks.world_size()) if taken < batches else (epoch + 1, 0)
    return (
        0 <= done <= (steps if epoch < run["epochs"] else 0)
        and 0 <= content["seconds"] < math.inf
        and (content["seconds"] > 0 or not done)
        and all(_is_result(result, number) for number, result in enumerate(results))
        and sums.shape == (ranks.world_size(), 3)
        and bool((sums[:, 2] == images).all() and (sums[:, 1] >= 0).all())
        and bool((sums[:, 1] <= images).all())
        and (content["loader"].get("epoch"), content["loader"].get("samples")) == position
    )


def _is_result(result: object, epoch: int) -> bool:
    """Whether it has the fields of an :class:`EpochResult` of this epoch."""
    if not isinstance(result, dict) or result.get("epoch") != epoch:
        return False
    figures = {name: value for name, value in result.items() if name != "epoch"}
    if figures.get("val_accuracy") is None:
        figures.pop("val_accuracy", None)
    return all(isinstance(value, float) for value in figures.values())


def _check_same(path: Path, theirs: Mapping[str, object], ours: Mapping[str, object]) -> None:
    for name in {**theirs, **ours}:
        if theirs.get(name) != ours.get(name):
            raise StateError(
                f"{path} is of another run: its {name} is {_shown(theirs.get(name))}, here it is "
                f"{_shown(ours.get(name))}; resume with the same settings, or train from the start "
                "with another checkpoint"
            )


def _shown(value: object, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else text[:most] + " ..."
