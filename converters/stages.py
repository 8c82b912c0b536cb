"""The stages of a pack that run side by side: threads that read and code, and one that writes."""

import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar

from fastdata.converters.images.coding import Coded, Coding
from fastdata.converters.sources.listing import Listing, Unreadable
from fastdata.dataset.manifest import Skipped
from fastdata.errors import DecodeError, SourceError
from fastdata.images.probe import EXTENSIONS
from fastdata.system.checksum import crc32c
from fastdata.system.resources import never
from fastdata.system.threads import Owner, Task, Threads

Stage = Literal["reading", "coding", "writing"]

# What may be read ahead of the writer: enough files to keep threads busy while the writer syncs a
# shard, few enough bytes for a small machine.
_FILES_PER_WORKER = 64
_WINDOW_BYTES = 128 << 20

_MOST_UNWRITTEN = 64 << 20  # bytes that were handed to the writing thread

_T = TypeVar("_T")


class Loaded(NamedTuple):
    """A sample that is ready to be written.

    Attributes:
        coded: Its image.
        crc: CRC32C of the image.
        fields: Further fields by extension.
        seconds: Time that the coding took.
    """

    coded: Coded
    crc: int
    fields: Mapping[str, bytes] = {}
    seconds: float = 0.0


def read_all(
    listing: Listing, order: Iterable[int], workers: int, coding: Coding
) -> Generator[tuple[int, Loaded | Skipped], None, None]:
    """Read and code samples ahead, within bounds of number and bytes, and yield them in order.

    Args:
        listing: The source.
        order: Places in the listing.
        workers: Number of threads, 1 or more.
        coding: How images are stored.

    Yields:
        Each place, and the sample or why it is left out.

    Raises:
        SourceError: This process has run out of file descriptors or memory.
    """
    pending: deque[tuple[int, int, Task[Loaded | Skipped]]] = deque()
    ahead = 0
    stop = threading.Event()  # ends waiting for memory, which cancelling tasks does not
    pool = Threads(workers, "fastdata-read")
    try:
        with warnings.catch_warnings():
            # Pillow warns of odd metadata; what is wrong with pixels it raises.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            for place in order:
                size = listing.size_of(place)
                # The oldest is yielded first, so results come in order whichever task ends first.
                while pending and (
                    ahead + size > _WINDOW_BYTES or len(pending) >= _FILES_PER_WORKER * workers
                ):
                    done, freed, task = pending.popleft()
                    yield done, task.result()
                    ahead -= freed
                task = pool.submit(load, listing, place, coding, stop.is_set)
                pending.append((place, size, task))
                ahead += size
            while pending:
                done, _, task = pending.popleft()
                yield done, task.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def load(
    listing: Listing, place: int, coding: Coding, stopped: Callable[[], bool] = never
) -> Loaded | Skipped:
    """Read and code one image, and read its fields.

    Args:
        listing: The source.
        place: Place in the listing.
        coding: How images are stored.
        stopped: Whether it is not wanted any more, while it waits for memory.

    Raises:
        SourceError: As :func:`read_all`.
        StoppedError: It is not wanted any more.
    """
    name = os.fsdecode(listing.name(place))
    data = listing.read(place)
    if isinstance(data, Unreadable):
        return Skipped(name, data.reason)
    started = time.perf_counter()
    try:
        coded = coding.code_file(data, name, stopped)
    except DecodeError as error:
        return Skipped(name, f"no usable image: {error}")
    except MemoryError:
        raise SourceError(
            f"{name}: there is no memory to code this image; use fewer workers, or a lower "
            "max_pixels"
        ) from None
    seconds = time.perf_counter() - started
    fields: dict[str, bytes] = {}
    for field, value in listing.read_fields(place).items():
        if isinstance(value, Unreadable):
            return Skipped(name, f"no usable field: {field}: {value.reason}")
        fields[field] = value
    # In a tar, the field's member would have the name of the image's.
    if (extension := EXTENSIONS[coded.info.format]) in fields:
        return Skipped(name, f"no usable field: {extension}: the image itself has this extension")
    return Loaded(coded, crc32c(coded.image), fields, seconds)


class Sink(Owner):
    """Runs callables in order on one thread, which hashes, writes and syncs.

    After one has raised, no other is run, and every later call raises its exception.

    Args:
        most_bytes: Bytes that may wait, unless a single callable holds more.

    Attributes:
        waited: Seconds that callers of ``put`` and ``join`` have waited.
    """

    def __init__(self, most_bytes: int = _MOST_UNWRITTEN) -> None:
        super().__init__()
        self.waited = 0.0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._queue: deque[tuple[Task[None], int]] = deque()
        self._thread = Threads(1, "fastdata-write")
        self._error: BaseException | None = None

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
        self._wait(lambda: self._bytes + size <= self._most_bytes)
        self._queue.append((self._thread.submit(self._run, function), size))
        self._bytes += size

    def join(self) -> None:
        """Wait until everything was run.

        Raises:
            BaseException: What a callable raised, as it is.
        """
        self.require_here()
        self._wait(lambda: not self._queue)

    def close(self) -> None:
        """End the thread once the callable that is running returns; what waits is dropped."""
        self._thread.shutdown(cancel_futures=True)

    def _wait(self, ready: Callable[[], bool]) -> None:
        started = time.perf_counter()
        while self._queue and self._error is None and not ready():
            task, size = self._queue[0]
            task.result()  # raises nothing: _run keeps the error
            self._queue.popleft()
            self._bytes -= size
        self.waited += time.perf_counter() - started
        if self._error is not None:
            raise self._error

    def _run(self, function: Callable[[], object]) -> None:
        if self._error is None:
            try:
                function()
            except BaseException as error:  # noqa: BLE001 - raised again by the next call
                self._error = error


class Bottleneck:
    """Finds the stage that the others wait for.

    Args:
        workers: Number of threads that read and code.

    Attributes:
        waited: Seconds that the packing thread has waited for them.
        coding: Seconds that they have spent coding, together.
    """

    def __init__(self, workers: int) -> None:
        self.waited = 0.0
        self.coding = 0.0
        self._workers = workers
        self._started = time.perf_counter()

    def timed(self, results: Iterator[_T]) -> Iterator[_T]:
        """Yield results, and count the time until each comes."""
        while True:
            before = time.perf_counter()
            result = next(results, None)
            self.waited += time.perf_counter() - before
            if result is None:
                return
            yield result

    def stage(self, writing: float) -> Stage:
        """The slowest stage.

        Args:
            writing: Seconds that the packing thread has waited for the disk.
        """
        # The packing thread waits either for the disk or for the readers.
        if writing >= self.waited:
            return "writing"
        available = self._workers * (time.perf_counter() - self._started)
        return "coding" if self.coding > available / 2 else "reading"
