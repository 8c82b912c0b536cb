"""Threads to work on, and what a forked child has of them: none."""

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from fastdata.errors import OptionError, ThreadError

_P = ParamSpec("_P")
_T = TypeVar("_T")

MOST = 1024
"""Threads, processes and batches ahead that anybody may ask for."""


def check_count(name: str, count: int, most: int = MOST) -> None:
    """Refuse a number of anything that is out of range.

    Raises:
        OptionError: It is less than 1, or more than ``most``.
    """
    if not 1 <= count <= most:
        raise OptionError(f"{name} must be from 1 to {most}, found {count}")


class Owner:
    """Base of what has threads, processes or page-locked memory: it belongs to its process.

    A forked child has its parent's objects, but no threads, no say over processes or devices, and
    locks as they were at the fork. There an owner and all that it refers to is left alone: it is
    not used, waited for or freed, until the child's end and beyond.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        _OWNERS.add(self)

    def is_here(self) -> bool:
        """Whether this is the process that made it, and not a child of that."""
        return os.getpid() == self._process

    def require_here(self) -> None:
        """Refuse to be used by a forked child.

        Raises:
            OptionError: This is one.
        """
        if not self.is_here():
            raise OptionError("a loader's threads do not survive a fork; make it in the child")

    def leave_to_parent(self) -> None:
        """Called in a forked child, before anything else runs there."""

    def end_with_interpreter(self) -> None:
        """Called when the interpreter ends, before its threads are ended."""


_OWNERS: "weakref.WeakSet[Owner]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for owner in _OWNERS:
        owner.leave_to_parent()
        # A reference that nothing gives back, not even the interpreter at its end: a destructor
        # would wait for threads, or take page-locked memory from the parent's device.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


os.register_at_fork(after_in_child=_after_fork_in_child)


class Flag:
    """Set once, and seen by all threads. It has no lock, which a Ctrl-C could leave locked."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Set it."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set


class Task(Future[_T]):
    """A function that one of the threads runs, and its result.

    It does as other futures do, but holds no lock while Python code runs: a Ctrl-C in the midst of
    waiting or cancelling would leave it locked, and the thread would wait for it for ever.
    """

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call: Callable[[], _T] | None = call
        self._fate: dict[str, bool] = {}  # who came first, in one step: a thread, or cancel()
        self._ended = threading.Lock()  # held until the end; waiting on it alone needs no Python
        self._ended.acquire()
        self._done = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run the function, unless it was cancelled."""
        call, self._call = self._call, None
        if call is None or self._fate.setdefault("cancelled", False):
            return
        try:
            self._value = call()
        except BaseException as error:  # noqa: BLE001 - it travels to whoever waits
            self._error = error
        self._done = True
        self._ended.release()

    def cancel(self) -> bool:
        """Do not begin it; whether that came in time."""
        return self._fate.setdefault("cancelled", True)

    def cancelled(self) -> bool:
        """Whether it was cancelled in time."""
        return self._fate.get("cancelled", False)

    def running(self) -> bool:
        """Whether it was begun, and did not end yet."""
        return bool(self._fate) and not self.done()

    def done(self) -> bool:
        """Whether nothing runs any more, nor will."""
        return self._done or self.cancelled()

    def wait(self, seconds: float) -> bool:
        """Wait until it is done; False if that takes longer."""
        if not self.done() and self._ended.acquire(timeout=max(0.0, seconds)):
            self._ended.release()  # for others who wait; what is done is not waited for
        return self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Its error, or None; raises as :meth:`result` does where there is neither."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.wait(_LOOK if end is None else min(_LOOK, end - time.monotonic())):
            if end is not None and time.monotonic() >= end:
                raise TimeoutError
        if self.cancelled():
            raise CancelledError
        return self._error

    def result(self, timeout: float | None = None) -> _T:
        """What the function returned, or raised.

        Raises:
            TimeoutError: It takes longer.
            CancelledError: It was cancelled.
        """
        try:
            if (error := self.exception(timeout)) is not None:
                raise error
            return self._value
        finally:
            error = None  # whose traceback refers to here
            del self


def ended(tasks: Iterable[Task[Any]], seconds: float) -> bool:
    """Wait until all are done; False if that takes longer."""
    end = time.monotonic() + seconds
    return all(task.wait(end - time.monotonic()) for task in tasks)


class Threads(Executor, Owner):
    """Threads that run functions in the order of submission.

    They start with the first function. Where the system allows fewer, these do all the work. They
    end after :meth:`shutdown`, with the last reference to this object, or with the interpreter.
    """

    def __init__(self, most: int, name: str) -> None:
        """Start none yet.

        Args:
            most: Threads.
            name: Of the threads, to tell them apart in a debugger.
        """
        super().__init__()
        self._most = most
        self._name = name
        self._guard = threading.Lock()
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[Task[Any] | None] = SimpleQueue()
        weakref.finalize(self, _end, self._queue).atexit = False

    def start(self) -> int:
        """Start them now; how many there are.

        Raises:
            ThreadError: The system allows none.
        """
        with self._guard:
            return self._start()

    def submit(
        self, function: Callable[_P, _T], /, *args: _P.args, **options: _P.kwargs
    ) -> Task[_T]:
        """Run a function on one of the threads.

        Raises:
            ThreadError: The system allows none.
            OptionError: This is a forked child of the process that they belong to.
        """
        self.require_here()
        with self._guard:
            if self._closed:
                raise RuntimeError("these threads were ended")
            if not self._threads and (started := self._start()) < self._most:
                warn_of_fewer(started, self._most)
            task = Task(lambda: function(*args, **options))
            self._queue.put(task)
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """End the threads once everything was run, or what is running if the rest is cancelled."""
        if not self.is_here():
            return
        with self._guard:
            self._closed = True
            if cancel_futures:
                with contextlib.suppress(Empty):
                    while True:
                        if (task := self._queue.get_nowait()) is not None:
                            task.cancel()
            _end(self._queue)
        if wait:
            for thread in self._threads:
                thread.join()

    def _start(self) -> int:
        while len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            # a daemon, as others would be waited for before anything tells them to end
            thread = threading.Thread(target=_run, args=(self._queue,), name=name, daemon=True)
            try:
                start(thread)
            except ThreadError:
                if not self._threads:
                    raise
                break
            self._threads.append(thread)
            _RUNNING[thread] = self._queue
        return len(self._threads)


def start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        ThreadError: The system allows no further one.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise ThreadError(f"{error}; {_REMEDY}") from error


def warn_of_fewer(started: int, wanted: int) -> None:
    """Say that work goes on with fewer threads than were asked for."""
    warnings.warn(
        f"only {started} of {wanted} threads could be started; {_REMEDY}",
        RuntimeWarning,
        stacklevel=3,
    )


_LOOK = 1.0  # seconds between looks at a task, whose end wakes the waiter by itself
_REMEDY = "raise the limit (ulimit -u, a container's pids), or ask for fewer threads"
_RUNNING: "weakref.WeakKeyDictionary[threading.Thread, SimpleQueue[Task[Any] | None]]"
_RUNNING = weakref.WeakKeyDictionary()


def _run(queue: SimpleQueue[Task[Any] | None]) -> None:
    while (task := queue.get()) is not None:
        task.run()
        del task  # what it refers to is not kept until the next one comes
    queue.put(None)  # for the next thread, so that one is enough for however many there are


def _end(queue: SimpleQueue[Task[Any] | None]) -> None:
    """Let each thread end after what was submitted before."""
    queue.put(None)


def _at_exit() -> None:
    """Let no thread compute while the interpreter and loaded libraries are taken down."""
    for owner in list(_OWNERS):
        owner.end_with_interpreter()
    for thread, queue in list(_RUNNING.items()):
        if thread.is_alive():  # never so in a forked child
            _end(queue)
    for thread in list(_RUNNING):
        thread.join()
    if (core := sys.modules.get("fastdata._core")) is not None:
        core.hold_threads()  # those of others, which may be daemons


atexit.register(_at_exit)
