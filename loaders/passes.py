"""Passes over a data set, and where they stand."""

import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fastdata.batch.batch import Batch
from fastdata.device.transfer import Arrived
from fastdata.errors import OptionError, StateError
from fastdata.loaders import state
from fastdata.loaders.pipeline import Planned
from fastdata.plan.batch_plan import BatchPlan
from fastdata.plan.epochs import Epochs
from fastdata.system.threads import Owner

# Samples: numpy takes hardly longer for so many at a time than for a small batch.
_DRAWN_TOGETHER = 1024
_END = 10.0  # seconds that a batch under way may hold up the interpreter's end
_CLOSED = "this loader was closed; make a new one"


class Stage(Protocol):
    """What fills the batches of a plan in their order, some ahead of the one in use."""

    stopped: bool
    """Set by another thread that wants :meth:`receive` to end soon, by an error if need be."""

    @property
    def replaced(self) -> int:
        """Bad samples replaced so far."""

    @property
    def quarantined(self) -> Sequence[Mapping[str, object]]:
        """What is known of them."""

    def next_is(self, epoch: int, start: int) -> bool:
        """Whether the next batch was begun already and is the one at this place."""

    def restart(self, plan: Iterator[Planned]) -> None:
        """Drop what was begun, and go on with another plan, which never ends."""

    def receive(self) -> tuple[Planned, Arrived]:
        """Wait for the next batch, and begin those after it."""

    def discard(self) -> None:
        """Drop what was begun ahead of time."""

    def close(self) -> None:
        """End the threads."""


class Passes(Owner):
    """One pass after the other over the epochs, each from where the last one or a state left off.

    One thread at a time drives the stage. Others, and signal handlers, may end its pass meanwhile.

    Attributes:
        next: Epoch and first position of the pass that begins next.
    """

    def __init__(
        self,
        epochs: Epochs,
        plan: BatchPlan,
        pipeline: Stage,
        augmentation: Mapping[str, object],
        finish: Callable[[Planned, Arrived], Batch],
    ) -> None:
        """Stand at the beginning of epoch 0.

        Args:
            epochs: What is drawn.
            plan: How a whole epoch is cut into batches.
            pipeline: Fills them.
            augmentation: What a state must agree on besides these, by field.
            finish: Makes what is handed out.
        """
        super().__init__()
        self.next = (0, 0)
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
            **augmentation,
        }
        self._finish = finish
        self._at = (0, 0)  # epoch and position behind what was handed out
        self._number = 0
        self._closed = False
        self._ending = False
        self._turn = threading.RLock()  # of who drives the stage; a signal may come in between

    def when_gone(self, release: Callable[[], None]) -> None:
        """Let something be called when there are no passes any more; it must not refer to them."""
        weakref.finalize(self, _release, os.getpid(), self._turn, release)

    def require_open(self) -> None:
        """Refuse to go on without threads.

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
        """Go on from there; see :meth:`fastdata.Loader.load_state_dict`."""
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
                yield made.pop()  # what the consumer lets go of is not kept here
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
        """The next batch of pass ``number``, which is to begin at an epoch and position."""
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
                if number != self._number:  # what a close takes away is missed in many ways
                    raise self._ended() from error
                raise

    def _ended(self) -> Exception:
        """What is wrong with a pass that is not the current one."""
        if self._closed:
            return OptionError(_CLOSED)
        return RuntimeError("this pass ended: another was begun")


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
