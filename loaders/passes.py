"""Passes over a data set, and their position."""

import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import torch

from fastdata.batch.batch import Batch
from fastdata.batch.source import Source
from fastdata.device.slots import Arrived
from fastdata.errors import OptionError, StateError
from fastdata.loaders import state
from fastdata.loaders.options import Options
from fastdata.loaders.pipeline import Pipeline, Planned
from fastdata.plan.epochs import BatchPlan, Epochs
from fastdata.system.threads import Owner

# Samples: numpy takes hardly longer for so many at a time than for a small batch.
_DRAWN_TOGETHER = 1024
_END = 10.0  # seconds that a batch under way may hold up the interpreter's end
_CLOSED = "this loader was closed; make a new one"


class Passes(Owner):
    """One pass after the other over the epochs, each from where the last one or a state left off.

    One thread at a time drives the pipeline. Others, and signal handlers, may end its pass
    meanwhile.

    Attributes:
        next: Epoch and first position of the pass that begins next.
    """

    def __init__(
        self,
        source: Source,
        epochs: Epochs,
        plan: BatchPlan,
        pipeline: Pipeline[Any],
        options: Options,
    ) -> None:
        """Stand at the beginning of epoch 0.

        Args:
            source: The data set.
            epochs: Drawn from it.
            plan: How a whole epoch is cut into batches.
            pipeline: Fills them.
            options: The loader's.
        """
        super().__init__()
        self.next = (0, 0)
        self._source = source
        self._epochs = epochs
        self._plan = plan
        self._pipeline = pipeline
        self._content = {
            "fingerprint": epochs.fingerprint,
            "samples_in_epoch": len(epochs),
            "choice": epochs.choice,
            "shuffle": epochs.shuffle,
            "seed": epochs.seed,
            "repeats": epochs.repeats,
            "drop_last": plan.drop_last,
            "crop": repr(options.crop),
            "flip": options.crop.flip,
            "views": options.views,
        }
        self._views = options.views
        self._augment = options.augment
        self._at = (0, 0)  # epoch and position after what was handed out
        self._number = 0
        self._closed = False
        self._ending = False
        self._turn = threading.RLock()  # to drive the pipeline; a signal may come in between

    def when_gone(self, release: Callable[[], None]) -> None:
        """Call ``release`` once the passes are gone; it must not refer to them."""
        weakref.finalize(self, _release, os.getpid(), self._turn, release)

    def require_open(self) -> None:
        """Refuse to continue without threads.

        Raises:
            OptionError: They were ended, or are those of this child's parent.
        """
        self.require_here()
        if self._closed:
            raise OptionError(_CLOSED)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the pass that begins next."""
        if epoch < 0:
            raise OptionError(f"epoch must be 0 or more, found {epoch}")
        self.next = self._at = (epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Where it stands; see :meth:`fastdata.Loader.state_dict`."""
        return state.compose(self._content, *self._at)

    def load_state_dict(self, given: Mapping[str, Any], override: Collection[str]) -> None:
        """Resume there; see :meth:`fastdata.Loader.load_state_dict`."""
        self.require_here()
        epoch, samples = state.position(given, self._content, override)
        if samples > len(self._epochs):
            raise StateError(f"samples is {samples}, an epoch has {len(self._epochs)}")
        if not len(replace(self._plan, start=samples)):
            epoch, samples = epoch + 1, 0
        self.end()
        with self._turn:
            self._pipeline.discard()
        self.next = self._at = (epoch, samples)

    def begin(self) -> Iterator[Batch]:
        """Begin a pass; it ends the one before it."""
        self.end()
        epoch, start = self._at = self.next
        self.next = (epoch, 0)
        return self._iterate(self._number, epoch, start)

    def end(self) -> None:
        """End the pass that is under way: its next batch is an error."""
        self._number += 1

    def close(self) -> None:
        """End the pass that is under way, and the threads."""
        self._closed = True
        self.end()
        self._pipeline.stopped = True
        with self._turn:
            self._pipeline.close()

    def _iterate(self, number: int, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of pass ``number``."""
        left = len(replace(self._plan, start=start))
        try:
            begun = False
            while left:
                planned, batch = self._next(number, None if begun else (epoch, start))
                begun = True
                made = [batch]
                del batch
                left -= 1
                self._at = (epoch, planned.end) if left else (epoch + 1, 0)
                if not left and self.next == (epoch, 0):
                    self.next = (epoch + 1, 0)
                yield made.pop()  # a batch that the consumer lets go of is not kept here
        finally:
            if number == self._number and left and not self._ending and self.is_here():
                with self._turn:
                    self._pipeline.discard()

    def end_with_interpreter(self) -> None:
        """Wait until no daemon thread is at a batch, and let none begin another."""
        self._ending = True
        if self.is_here():
            self._turn.acquire(timeout=_END)

    def _next(self, number: int, begin: tuple[int, int] | None) -> tuple[Planned, Batch]:
        """The next batch of pass ``number``, which begins at an epoch and position."""
        self.require_open()
        if self._ending and threading.current_thread() is not threading.main_thread():
            # CPython before 3.14 would unwind this thread's stack within a call of torch's or of
            # the core's, which ends the process with an error.
            threading.Event().wait()
        with self._turn:
            if number != self._number:
                raise self._ended()
            try:
                if begin is not None and not self._pipeline.next_is(*begin):
                    self._pipeline.restart(_planned(self._epochs, self._plan, *begin))
                planned, arrived = self._pipeline.receive()
                return planned, self._finish(planned, arrived)
            except Exception as error:
                if number != self._number:  # a close takes things away that are missed in many ways
                    raise self._ended() from error
                raise

    def _finish(self, planned: Planned, arrived: Arrived) -> Batch:
        """The batch, in the thread and stream of whoever asks for it.

        Raises:
            OptionError: ``augment`` does not return two tensors.
        """
        images, labels, valid, masks, fields = arrived
        if self._augment is not None:
            made: object = self._augment(images, labels)
            if not _is_pair(made):
                raise OptionError(
                    f"augment must return (images, labels), two tensors, found {type(made)}"
                )
            images, labels = made
        columns, crops = ({}, None) if fields is None else (fields.columns, fields.crops)
        keys = self._source.keys
        return Batch(images, labels, planned.ids, valid, keys, self._views, masks, columns, crops)

    def _ended(self) -> Exception:
        """The error of a pass that is not the current one."""
        if self._closed:
            return OptionError(_CLOSED)
        return RuntimeError("this pass ended: another was begun")


def _is_pair(made: object) -> TypeGuard[tuple[torch.Tensor, torch.Tensor]]:
    """Whether these are two tensors; torchvision may give a list."""
    return (
        isinstance(made, tuple | list)
        and len(made) == 2
        and all(isinstance(tensor, torch.Tensor) for tensor in made)
    )


def _release(process: int, turn: threading.RLock, release: Callable[[], None]) -> None:
    """Let go of what passes held, if it is this process's.

    At the interpreter's end a daemon thread may still wait for a batch: it is left to that.
    """
    if os.getpid() == process and turn.acquire(blocking=False):
        try:
            release()
        finally:
            turn.release()


def _planned(epochs: Epochs, plan: BatchPlan, epoch: int, start: int) -> Iterator[Planned]:
    """The batches of a rank from a place on, over all epochs that follow."""
    together = max(1, _DRAWN_TOGETHER // plan.batch_size)
    while True:
        rest = replace(plan, start=start)
        for index in range(0, len(rest), together):
            indexes = range(index, min(index + together, len(rest)))
            places = [rest.positions(i) for i in indexes]
            ids, copies = epochs.draw(np.concatenate([positions for positions, _ in places]), epoch)
            at = 0
            for i, (positions, valid) in zip(indexes, places, strict=True):
                mine = slice(at, at := at + len(positions))
                first = start + i * rest.global_batch
                end = rest.end(i)
                yield Planned(epoch, first, end, positions, ids[mine], copies[mine], valid)
        epoch, start = epoch + 1, 0
