"""Checkpoints: all that a run needs to go on as if it had never stopped."""

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
from fastdata.train.recipe import Recipe
from fastdata.train.results import EpochResult
from fastdata.train.step import TrainStep

VERSION = 1

_PROBE = 1 << 12  # bytes that are written to see whether any can be

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
    """Where a run stands.

    Attributes:
        meter: Sums of the epoch under way.
        step: Steps of the optimiser that are done, over all epochs.
        seconds: Time that the epoch under way has taken.
        epochs: What the finished epochs found.
    """

    meter: PassMeter
    step: int = 0
    seconds: float = 0.0
    epochs: list[EpochResult] = field(default_factory=list)

    def finish_epoch(self, result: EpochResult, meter: PassMeter) -> None:
        """Begin the next epoch, with a meter that has seen nothing."""
        self.epochs.append(result)
        self.meter, self.seconds = meter, 0.0


class Checkpoints:
    """The checkpoint of a run: one file, replaced by its next version in one move."""

    def __init__(
        self,
        path: Path,
        *,
        every: int | None,
        run: Mapping[str, object],
        step: TrainStep,
        data: Loader,
    ) -> None:
        """Say what belongs to a checkpoint.

        Args:
            path: The file; with several nodes in a folder that all of them see.
            every: Steps between two checkpoints within an epoch; None for none.
            run: What a run must agree on to go on from it, by name: plain values.
            step: Its parts are saved.
            data: Its place is saved.
        """
        self._path = path
        self._every = every
        self._run = dict(run)
        self._step = step
        self._data = data

    def due(self, step: int) -> bool:
        """Whether a checkpoint belongs behind this step, within an epoch."""
        return self._every is not None and step % self._every == 0

    def write(self, at: Position) -> None:
        """Write where the run stands. All ranks must call it; they leave when it is on the disk.

        Raises:
            OSError: The file cannot be written; the checkpoint before it stays.
        """
        device = self._step.device
        sums, random = ranks.gather(at.meter.sums()).cpu(), ranks.gather(random_state(device)).cpu()
        if ranks.number() == 0:
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
        ranks.meet(device)

    def restore(self, at: Position) -> None:
        """Put step, loader, random numbers and ``at`` where the checkpoint was written.

        Raises:
            StateError: The file is no whole checkpoint, or of another run; the text says in what.
        """
        content = read(self._path)
        _check_same(self._path, content["run"], self._run)
        if not _fits_together(content, len(self._data)):
            raise StateError(
                f"{self._path} is no checkpoint of this run: steps, epochs, sums and place in the "
                "data contradict each other; take an older copy, or train from the start"
            )
        try:
            for name, part in self._step.parts().items():
                part.load_state_dict(content["parts"][name])
        except Exception as error:  # torch and optimisers raise whatever comes
            raise StateError(f"{self._path} does not fit the model: {error}") from error
        self._data.load_state_dict(content["loader"])
        try:
            at.step, at.seconds = content["step"], content["seconds"]
            at.epochs[:] = [EpochResult(**result) for result in content["epochs"]]
            at.meter.go_on(content["sums"][ranks.number()])
            set_random_state(content["random"][ranks.number()], self._step.device)
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
        # torch ends its archive after an error, too, which is then another error.
        reason = error if isinstance(error, OSError) else error.__context__
        if not isinstance(reason, OSError):
            raise
        raise OSError(reason.errno, reason.strerror, str(path)) from error


def prepare(path: Path, *, every: int | None, resume: bool, device: torch.device) -> bool:
    """Check where a checkpoint is to go, before any work is done; whether one is there to resume.

    Raises:
        DestinationError: There is one, and nobody said that the run goes on from it; or none can be
            written.
        OptionError: The folder does not exist, not all ranks see the file, or ``every`` is out
            of range.
    """
    if every is not None and every < 1:
        raise OptionError(f"checkpoint_every must be 1 or more steps, not {every}")
    if not path.parent.is_dir():
        raise OptionError(f"checkpoint: the folder {path.parent} does not exist; make it")
    if path.exists() and not resume:
        raise DestinationError(f"{path} exists; go on from it with resume, or remove it")
    seen = int(ranks.add_up(torch.tensor(int(path.exists()), device=device)))
    if 0 < seen < ranks.count():
        raise OptionError(f"only {seen} of {ranks.count()} ranks see {path}; share its folder")
    reason = _why_not_written(path) if ranks.number() == 0 else ""
    if int(ranks.add_up(torch.tensor(int(bool(reason)), device=device))):
        raise DestinationError(
            f"checkpoint: {path} cannot be written: {reason or 'see the first rank'}; name a file "
            "in another folder, or mend this one"
        )
    return seen > 0


class _Written(Exception):  # noqa: N818 - no error: it undoes what was written to try it
    pass


def _why_not_written(path: Path) -> str:
    """What keeps a checkpoint from being written; empty if nothing does. ``path`` is left alone."""

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
    """What two runs must agree on for one to go on from the other's checkpoint, by name."""
    return {
        **dataclasses.asdict(recipe),
        "model": model,
        "data set": source.fingerprint,
        "classes": list(source.classes),
        "number of ranks": ranks.count(),
        "kind of device": device.type,
    }


def read(path: Path) -> dict[str, Any]:
    """A checkpoint's content, on the CPU. Nothing in the file is executed.

    Raises:
        StateError: It is damaged, or no checkpoint of this version.
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
    except Exception as error:  # zip files and torch raise whatever comes
        raise StateError(f"{path} is no whole checkpoint: {type(error).__name__}") from error
    if damaged:
        raise StateError(
            f"{path} is damaged in {damaged}; take an older copy, or train from the start"
        )
    if not isinstance(content, dict) or content.keys() != _FIELDS.keys():
        raise StateError(f"{path} is no checkpoint of `fastdata train`, version {VERSION}")
    wrong = [name for name, kind in _FIELDS.items() if type(content[name]) is not kind]
    if wrong or content["version"] != VERSION:
        raise StateError(f"{path} is no checkpoint of `fastdata train`, version {VERSION}")
    return content


def _fits_together(content: Mapping[str, Any], batches: int) -> bool:
    """Whether the numbers of a checkpoint are of one moment in a run.

    Args:
        content: Of a checkpoint of this very run.
        batches: In an epoch.
    """
    run, results, sums = content["run"], content["epochs"], content["sums"]
    steps, epoch = math.ceil(batches / run["accumulate"]), len(results)
    done = content["step"] - epoch * steps  # in the epoch under way
    taken = min(done * run["accumulate"], batches)
    images = taken * run["batch_size"]  # of each rank
    place = (epoch, images * ranks.count()) if taken < batches else (epoch + 1, 0)
    return (
        0 <= done <= (steps if epoch < run["epochs"] else 0)
        and 0 <= content["seconds"] < math.inf
        and (content["seconds"] > 0 or not done)
        and all(_is_result(result, number) for number, result in enumerate(results))
        and sums.shape == (ranks.count(), 3)
        and bool((sums[:, 2] == images).all() and (sums[:, 1] >= 0).all())
        and bool((sums[:, 1] <= images).all())
        and (content["loader"].get("epoch"), content["loader"].get("samples")) == place
    )


def _is_result(result: object, epoch: int) -> bool:
    """Whether it is what a finished epoch found."""
    if not isinstance(result, dict) or result.get("epoch") != epoch:
        return False
    figures = {name: value for name, value in result.items() if name != "epoch"}
    if figures.get("val_accuracy") is None:
        figures.pop("val_accuracy", None)
    return all(isinstance(value, float) for value in figures.values())


def _check_same(path: Path, theirs: Mapping[str, object], ours: Mapping[str, object]) -> None:
    """A checkpoint is of the same run as this one."""
    for name in {**theirs, **ours}:
        if theirs.get(name) != ours.get(name):
            raise StateError(
                f"{path} is of another run: its {name} is {_shown(theirs.get(name))}, here it is "
                f"{_shown(ours.get(name))}; run it as it was, or train from the start with another "
                "checkpoint"
            )


def _shown(value: object, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else text[:most] + " ..."
