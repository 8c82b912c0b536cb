"""Threads that run functions, and who owns them: a forked child has none of its parent's."""

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
"""Most threads, processes or batches ahead that anybody may ask for."""

_POLL = 1.0  # seconds between checks of a task; its end wakes the waiter at once anyway
_REMEDY = "raise the limit (ulimit -u, a container's pids), or ask for fewer threads"


def check_count(name: str, count: int, most: int = MOST) -> None:
    """Refuse a number that is out of range.

    Raises:
        OptionError: It is below 1 or above ``most``.
    """
    if not 1 <= count <= most:
        raise OptionError(f"{name} must be from 1 to {most}, found {count}")


class Owner:
    """Base of what has threads, processes or page-locked memory: it belongs to one process.

    A forked child gets its parent's objects, but no threads, no control of processes or devices,
    and locks in whatever state they were. So an owner and all that it refers to is left alone
    there: not used, not waited for, and not freed even when the child ends.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        _OWNERS.add(self)

    def is_here(self) -> bool:
        """Whether this is the process that made it, and not a forked child."""
        return os.getpid() == self._process

    def require_here(self) -> None:
        """Refuse to be used in a forked child.

        Raises:
            OptionError: This is one.
        """
        if not self.is_here():
            raise OptionError("a loader's threads do not survive a fork; make it in the child")

    def leave_to_parent(self) -> None:
        """Called in a forked child before anything else runs there."""

    def end_with_interpreter(self) -> None:
        """Called when the interpreter ends, before threads are ended."""


_OWNERS: "weakref.WeakSet[Owner]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for owner in _OWNERS:
        owner.leave_to_parent()
        # Nothing gives this reference back, not even the interpreter as it ends: a destructor would
        # wait for threads that are not there, or free page-locked memory of the parent's device.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


os.register_at_fork(after_in_child=_after_fork_in_child)


class Flag:
    """Set once and seen by all threads. An Event has a lock, which a Ctrl-C could leave locked."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Set it."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set


class Task(Future[_T]):
    """A function for one of the threads to run, and its result.

    It behaves as any future, but holds no lock while Python code runs: a Ctrl-C in the middle of
    waiting or cancelling would leave that locked, and the thread would wait for it for ever.
    """

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call: Callable[[], _T] | None = call
        # Who came first, a thread or cancel(): setdefault() decides it in one atomic step.
        self._fate: dict[str, bool] = {}
        # Held until the function ends. Waiting for a bare lock runs no Python code.
        self._ended = threading.Lock()
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
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
        self._done = True
        self._ended.release()

    def cancel(self) -> bool:
        """Keep it from starting; False if it already has."""
        return self._fate.setdefault("cancelled", True)

    def cancelled(self) -> bool:
        """Whether it was cancelled before it started."""
        return self._fate.get("cancelled", False)

    def running(self) -> bool:
        """Whether it started and has not ended."""
        return bool(self._fate) and not self.done()

    def done(self) -> bool:
        """Whether it has ended or will never start."""
        return self._done or self.cancelled()

    def wait(self, seconds: float) -> bool:
        """Wait until it is done; False if that takes longer."""
        if not self.done() and self._ended.acquire(timeout=max(0.0, seconds)):
            self._ended.release()  # for others who wait
        return self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Its error, or None if it had none; raises as :meth:`result` if it has not ended."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.wait(_POLL if end is None else min(_POLL, end - time.monotonic())):
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
            # The traceback refers to this frame: keep no cycle of it, the error and this task.
            error = None
            del self


def ended(tasks: Iterable[Task[Any]], seconds: float) -> bool:
    """Wait until all are done; False if that takes longer than ``seconds``."""
    end = time.monotonic() + seconds
    return all(task.wait(end - time.monotonic()) for task in tasks)


class Threads(Executor, Owner):
    """Threads that run functions in the order of submission.

    They start with the first function. If the system allows fewer than asked for, those do all the
    work. They end after :meth:`shutdown`, with the last reference to this object, or with the
    interpreter.
    """

    def __init__(self, most: int, name: str) -> None:
        """Start none yet.

        Args:
            most: Number of threads.
            name: Prefix of their names in a debugger.
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
        """Start them now, and return how many run.

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
            OptionError: This is a forked child of their process.
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
        """End the threads after all that was submitted, or only after what is running now."""
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
            # A daemon: the interpreter waits for others before it calls what tells them to end.
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
    """Warn that fewer threads than asked for do the work."""
    warnings.warn(
        f"only {started} of {wanted} threads could be started; {_REMEDY}",
        RuntimeWarning,
        stacklevel=3,
    )


_RUNNING: "weakref.WeakKeyDictionary[threading.Thread, SimpleQueue[Task[Any] | None]]"
_RUNNING = weakref.WeakKeyDictionary()


def _run(queue: SimpleQueue[Task[Any] | None]) -> None:
    while (task := queue.get()) is not None:
        task.run()
        del task  # or all that it refers to would live until the next one comes
    queue.put(None)  # for the next thread: one None ends them all


def _end(queue: SimpleQueue[Task[Any] | None]) -> None:
    """Let the threads end after what was submitted before."""
    queue.put(None)


def _at_exit() -> None:
    """Let no thread compute while the interpreter and its libraries are taken down."""
    for owner in list(_OWNERS):
        owner.end_with_interpreter()
    for thread, queue in list(_RUNNING.items()):
        if thread.is_alive():  # never so in a forked child
            _end(queue)
    for thread in list(_RUNNING):
        thread.join()
    if (core := sys.modules.get("fastdata._core")) is not None:
        core.hold_threads()  # Python threads of others, which may be daemons, inside the core


atexit.register(_at_exit)
