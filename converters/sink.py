"""One thread that hashes, writes and syncs in order, while others read and code."""

import threading
import time
from collections import deque
from collections.abc import Callable

from fastdata.system.threads import Owner, start

_MOST_BYTES = 64 << 20  # handed over and not yet written


class Sink(Owner):
    """Runs callables one after the other on a thread of its own.

    After one has raised, no other is run, and its exception comes out of the next call.

    Args:
        most_bytes: Bytes that wait at most, unless a single callable has more.

    Attributes:
        waited: Seconds that callers of ``put`` and ``join`` have waited.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__()
        self.waited = 0.0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._queue: deque[tuple[Callable[[], object], int]] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, function: Callable[[], object], size: int = 0) -> None:
        """Hand over a callable, and wait where too much is waiting already.

        Args:
            function: Called on the thread, after all that were put before.
            size: Bytes that it holds on to.

        Raises:
            BaseException: What an earlier callable raised, as it is.
            ThreadError: The thread cannot be started.
        """
        self.require_here()
        with self._changed:
            self._wait(lambda: not self._bytes or self._bytes + size <= self._most_bytes)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="fastdata-write", daemon=True)
                start(thread)
                self._thread = thread
            self._queue.append((function, size))
            self._bytes += size
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until everything was run.

        Raises:
            BaseException: What a callable raised, as it is.
        """
        self.require_here()
        with self._changed:
            self._wait(lambda: not self._queue)

    def close(self) -> None:
        """End the thread once the callable that is running returns; what waits is dropped."""
        if not self.is_here():
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _wait(self, ready: Callable[[], bool]) -> None:
        started = time.perf_counter()
        self._changed.wait_for(lambda: self._error is not None or ready())
        self.waited += time.perf_counter() - started
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while self._work():
            pass

    def _work(self) -> bool:
        """Run the next callable; return whether there may be another."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._queue)
            if self._closed:
                return False
            function, size = self._queue[0]
        error = None
        try:
            function()
        except BaseException as raised:  # noqa: BLE001 (raised again where it is asked for)
            error = raised
        with self._changed:
            self._error = error
            self._queue.popleft()
            self._bytes -= size
            self._changed.notify_all()
        return error is None
