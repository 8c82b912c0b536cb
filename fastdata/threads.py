"""Threads to work on, and what a forked child has of them: none."""

import atexit
import contextlib
import ctypes
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from fastdata.errors import OptionError, ThreadError
from fastdata.probe import core

_P = ParamSpec("_P")
_T = TypeVar("_T")

MOST = 1024
"""Threads, processes and batches ahead that anybody may ask for."""


def check_count(name: str, count: int) -> None:
    """Refuse a number of threads that nobody can want.

    Raises:
        OptionError: It is out of range.
    """
    if count < 1:
        raise OptionError(f"{name} must be 1 or more, found {count}")
    if count > MOST:
        raise OptionError(f"{name} must be {MOST} or fewer, found {count}")


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
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        weakref.finalize(self, _end, self._queue, self._threads).atexit = False

    def start(self) -> int:
        """Start them now; how many there are.

        Raises:
            ThreadError: The system allows none.
        """
        with self._guard:
            return self._start()

    def submit(
        self, function: Callable[_P, _T], /, *args: _P.args, **options: _P.kwargs
    ) -> Future[_T]:
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
            future: Future[_T] = Future()
            self._queue.put(_Task(future, lambda: function(*args, **options)))
        return future

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
                            task.future.cancel()
                            task.future.set_running_or_notify_cancel()
            _end(self._queue, self._threads)
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


class _Task:
    """A function to run, and where its result goes."""

    def __init__(self, future: Future[Any], call: Callable[[], Any]) -> None:
        self.future = future
        self._call = call

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except BaseException as error:  # noqa: BLE001 - it travels to whoever waits
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


_REMEDY = "raise the limit (ulimit -u, a container's pids), or ask for fewer threads"
_RUNNING: "weakref.WeakKeyDictionary[threading.Thread, SimpleQueue[_Task | None]]"
_RUNNING = weakref.WeakKeyDictionary()


def _run(queue: SimpleQueue[_Task | None]) -> None:
    while (task := queue.get()) is not None:
        task.run()
        del task  # what it refers to is not kept until the next one comes


def _end(queue: SimpleQueue[_Task | None], threads: list[threading.Thread]) -> None:
    """Let each thread end after what was submitted before."""
    for _ in threads:
        queue.put(None)


def _at_exit() -> None:
    """Let no thread compute while the interpreter and loaded libraries are taken down."""
    for owner in list(_OWNERS):
        owner.end_with_interpreter()
    for thread, queue in list(_RUNNING.items()):
        if thread.is_alive():  # never so in a forked child
            queue.put(None)
    for thread in list(_RUNNING):
        thread.join()
    if (native := core()) is not None:
        native.hold_threads()  # those of others, which may be daemons


atexit.register(_at_exit)
