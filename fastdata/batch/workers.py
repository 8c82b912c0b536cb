"""A user's function over images, on threads or in processes of their own.

Processes see the pixels in memory that they share with this one: nothing but row numbers and seeds
goes through a pipe. This module imports no torch, so that a process starts as fast as the function
lets it.
"""

import json
import mmap
import multiprocessing
import os
import queue
import random
import signal
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from itertools import repeat
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdata.errors import OptionError, ThreadError, TransformError
from fastdata.system.files import above_standard
from fastdata.system.threads import Owner, Threads

Pixels = npt.NDArray[np.uint8]
Transform = Callable[[Pixels, int], Any]
"""From (h, w, 3) uint8 and a seed to an image of the same shape and type."""

_END = 5.0  # seconds that a killed process may take to be gone
_PIECES = 4  # parts of a batch for each worker, so that one slow part does not hold up all


class Workers(Owner):
    """Threads that apply a function to rows of images, by themselves or through a process each.

    Attributes:
        arena: (slots, rows, h, w, 3) uint8 that the processes see; None without processes.
    """

    def __init__(
        self,
        transform: Transform,
        *,
        threads: int,
        processes: int,
        room: tuple[int, int, int, int, int],
    ) -> None:
        """Start the processes, which import the function's modules while this one continues.

        Args:
            transform: The function; processes need one that can be pickled.
            threads: Threads, if there are no processes.
            processes: Processes; 0 applies the function on threads of this one.
            room: Shape of the arena.

        Raises:
            OptionError: The function cannot be sent to a process.
            ThreadError: The system allows no further process.
        """
        super().__init__()
        self.arena: Pixels | None = None
        self._transform = transform
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._processes: list[_Process] = []
        if processes:
            memory = _SharedMemory(int(np.prod(room)))
            self.arena = np.frombuffer(memory.map, np.uint8).reshape(room)
            self._memory = memory
            try:
                for _ in range(processes):
                    self._processes.append(_Process(transform, memory, room[2:]))
                    self._idle.put(self._processes[-1])
            except BaseException:
                self._kill()
                raise
        self._threads = Threads(processes or threads, "fastdata-transform")
        self._pieces = _PIECES * (processes or threads)

    def apply(self, pixels: Pixels, rows: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        """Replace images by the results of the function.

        Args:
            pixels: (N, h, w, 3) uint8; with processes, a part of the arena.
            rows: Which of them.
            seeds: A seed for each of ``rows``.

        Returns:
            The traceback of each row that failed.

        Raises:
            TransformError: A process died.
        """
        size = max(1, -(-len(rows) // self._pieces))
        parts = [slice(first, first + size) for first in range(0, len(rows), size)]
        failed = self._threads.map(
            self._part, repeat(pixels), [rows[part] for part in parts], [seeds[p] for p in parts]
        )
        return {row: text for part in failed for row, text in part.items()}

    def close(self) -> None:
        """End threads and processes; a function under way in a process is not waited for."""
        if self.is_here():
            self._kill()
            self._threads.shutdown(wait=True, cancel_futures=True)

    def leave_to_parent(self) -> None:
        """Let a forked child know nothing of the processes, which are its parent's."""
        for process in self._processes:
            process.leave_to_parent()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()

    def _part(self, pixels: Pixels, rows: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        if self.arena is None:
            return _apply(self._transform, pixels, rows, seeds)
        start = pixels.__array_interface__["data"][0] - self.arena.__array_interface__["data"][0]
        first = start // pixels[0].nbytes
        process = self._idle.get()  # there are as many as threads
        try:
            failed = process.call([first + row for row in rows], list(seeds))
        finally:
            self._idle.put(process)
        return {row - first: text for row, text in failed.items()}


class _SharedMemory:
    """Memory that other processes of this user find under a path while this one lives.

    It is not in /dev/shm: containers give that 64 MB, and writing beyond is SIGBUS.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        file = above_standard(os.memfd_create("fastdata-pixels"))
        # no __del__, which finds no module at the interpreter's end
        weakref.finalize(self, os.close, file).atexit = False
        os.ftruncate(file, size)
        self.map = mmap.mmap(file, size)
        self.path = f"/proc/{os.getpid()}/fd/{file}"


class _Process:
    """One process, and this end of its pipe."""

    def __init__(self, transform: Transform, memory: _SharedMemory, shape: tuple[int, ...]) -> None:
        context = multiprocessing.get_context("spawn")  # forked threads' locks would stay locked
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, transform, memory.path, memory.size, shape),
            name="fastdata-worker",
            daemon=True,
        )
        try:
            self._process.start()
        except OSError as error:
            raise ThreadError(
                f"a worker process cannot be started: {error}; ask for fewer workers, or raise the "
                "limit (ulimit -u, a container's pids)"
            ) from error
        except Exception as error:  # pickle raises whatever the object's methods raise
            raise OptionError(
                f"transform cannot be sent to a worker process: {error}; "
                "define it at the top of a module, or use workers=0 for threads"
            ) from error
        theirs.close()

    def call(self, rows: list[int], seeds: list[int]) -> dict[int, str]:
        """Let it work on rows of the arena.

        Raises:
            TransformError: It died.
        """
        try:
            _send(self._pipe, [rows, seeds])
            failed = _receive(self._pipe)  # its death closes the other end
        except (EOFError, OSError) as error:
            self._process.join(_END)
            raise TransformError(
                f"a worker process ended with exit code {self._process.exitcode}; "
                "was it killed, or out of memory?"
            ) from error
        return dict(failed)

    def leave_to_parent(self) -> None:
        """In a forked child: it is no child of this one, which must not keep its pipe open."""
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined]  # noqa: SLF001
        self._pipe.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join(_END)


def _serve(
    pipe: Connection, transform: Transform, path: str, size: int, shape: tuple[int, ...]
) -> None:
    """A worker process: work on rows until the other end of the pipe is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that trains
    with open(path, "r+b") as file:
        arena = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8).reshape(-1, *shape)
    for library, single in (("torch", "set_num_threads"), ("cv2", "setNumThreads")):
        if library in sys.modules:  # the processes are the parallelism
            getattr(sys.modules[library], single)(1)
    while True:
        try:
            rows, seeds = _receive(pipe)
        except EOFError:
            return
        _send(pipe, list(_apply(transform, arena, rows, seeds, alone=True).items()))


def _send(pipe: Connection, message: list[Any]) -> None:
    # JSON, since the pickles of Connection.send leave a buffer that Python 3.13 complains about if
    # the other end died.
    pipe.send_bytes(json.dumps(message).encode())


def _receive(pipe: Connection) -> list[Any]:
    message: list[Any] = json.loads(pipe.recv_bytes())
    return message


def _apply(
    transform: Transform,
    pixels: Pixels,
    rows: Sequence[int],
    seeds: Sequence[int],
    *,
    alone: bool = False,
) -> dict[int, str]:
    """Apply the function to rows; ``alone`` in its process, with the global generators seeded."""
    failed = {}
    for row, seed in zip(rows, seeds, strict=True):
        image = pixels[row]
        try:
            if alone:
                _seed_generators(seed)
            _put(transform(image, seed), image)
        except Exception:  # noqa: BLE001 - whatever it raises, its text goes to the caller
            failed[row] = traceback.format_exc()
    return failed


def _put(made: Any, image: Pixels) -> None:
    pixels = np.asarray(made)
    if pixels.shape != image.shape or pixels.dtype != np.uint8:
        raise OptionError(
            f"transform must return a uint8 image of shape {image.shape} like its input, "
            f"found {pixels.dtype} of shape {pixels.shape}"
        )
    if pixels is not image:
        image[...] = pixels


def _seed_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - it is what users' code draws from
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
