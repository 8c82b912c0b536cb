"""Lets one of the calls that change the disk go wrong: by an error, a kill, or a power cut."""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

_OF_PATH = ("open", "mkdir", "replace", "rename", "unlink", "rmdir", "truncate")
_OF_FILE = ("write", "pwrite", "fsync", "ftruncate")
_REAL = {name: getattr(os, name) for name in (*_OF_PATH, *_OF_FILE)}
_NEEDS = {
    errno.ENOSPC: ("open", "mkdir", "write", "pwrite", "fsync"),
    errno.EMFILE: ("open", "look"),
}


class Call(NamedTuple):
    """A call that changes the disk.

    Attributes:
        name: As in os; "look" for an open that makes no file.
        path: Of the file or folder.
        do: Does it.
        half: Does half of it, where it is a write.
        target: The second path, where there is one.
    """

    name: str
    path: str
    do: Callable[[], Any]
    half: Callable[[], Any] | None = None
    target: str = ""


class Fault:
    """Counts calls, and lets nothing go wrong."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, call: Call) -> Any:
        """Do one call, or not."""
        self.calls += 1
        return call.do()


class Failure(Fault):
    """An error of the system: once, or from there on where disk or table of files are full.

    Args:
        at: Number of the call, from 1.
        number: The error.
    """

    def __init__(self, at: int, number: int) -> None:
        super().__init__()
        self._at = at
        self._number = number

    def __call__(self, call: Call) -> Any:
        """Do it, or raise after half of it."""
        self.calls += 1
        names = _NEEDS.get(self._number)
        hit = self.calls == self._at if names is None else self.calls >= self._at
        if hit and (names is None or call.name in names):
            if call.half is not None:
                call.half()
            raise OSError(self._number, os.strerror(self._number), call.path)
        return call.do()


class Kill(Fault):
    """The process ends at one call, as by kill -9; of a write, half is done.

    Args:
        at: Number of the call, from 1.
    """

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def __call__(self, call: Call) -> Any:
        """Do it, or end."""
        self.calls += 1
        if self.calls == self._at:
            self.end(call)
        return call.do()

    def end(self, call: Call) -> NoReturn:
        """End without any cleaning up."""
        if call.half is not None:
            call.half()
        os._exit(9)


class PowerCut(Kill):
    """As a kill, and all is lost that was not synced: bytes, and names in folders."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self._synced: dict[str, int] = {}
        self._undo: list[tuple[str, Callable[[], Any]]] = []

    def __call__(self, call: Call) -> Any:
        """Do it and remember how to undo it, or end."""
        if self.calls + 1 < self._at:
            self._remember(call)
        return super().__call__(call)

    def end(self, call: Call) -> NoReturn:  # noqa: ARG002 (half a write would be lost as well)
        """Lose what is not synced, the last changes first."""
        for path, size in self._synced.items():
            if os.path.isfile(path):
                _REAL["truncate"](path, min(size, os.path.getsize(path)))
        for _, undo in reversed(self._undo):
            undo()
        os._exit(9)

    def _remember(self, call: Call) -> None:
        path, folder = call.path, os.path.dirname(call.path)
        if call.name == "fsync" and os.path.isdir(path):
            self._undo = [entry for entry in self._undo if entry[0] != path]
        elif call.name == "fsync":
            self._synced[path] = os.path.getsize(path)
        elif call.name in ("write", "pwrite"):
            self._synced.setdefault(path, os.path.getsize(path))
        elif call.name == "unlink" and os.path.exists(path):
            self._undo.append((folder, _restore(path)))
        elif call.name == "open" and not os.path.exists(path):
            self._undo.append((folder, lambda: os.path.exists(path) and _REAL["unlink"](path)))
        elif call.name in ("rename", "replace"):
            old = _restore(call.target)
            self._synced[call.target] = self._synced.pop(path, 0)
            self._undo.append((folder, lambda: (_REAL["rename"](call.target, path), old())))


def _restore(path: str) -> Callable[[], Any]:
    """Brings a file back as it is now."""
    if not os.path.exists(path):
        return lambda: None
    with open(path, "rb") as file:
        data = file.read()

    def write() -> None:
        with open(path, "wb") as file:
            file.write(data)

    return write


def install(fault: Fault, root: Path, patch: pytest.MonkeyPatch) -> None:
    """Let a fault see every call that changes what is below a folder; reading is not seen."""
    inside = os.fspath(root)

    def is_inside(path: str) -> bool:
        return path.startswith(inside)

    for name in _OF_PATH:
        patch.setattr(os, name, _of_path(name, fault, is_inside))
    for name in _OF_FILE:
        patch.setattr(os, name, _of_file(name, fault))
    real_open = io.open

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode != "wb" or not isinstance(file, int) or not is_inside(_path_of(file)):
            return real_open(file, mode, *args, **options)
        return io.BufferedWriter(_File(file, fault))

    patch.setattr(io, "open", open_file)


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _full(path: Any, folder: int | None) -> str:
    """A path, or a name within an open folder, as a path."""
    text = os.fsdecode(path)
    return text if folder is None else os.path.join(_path_of(folder), text)


def _of_path(name: str, fault: Fault, is_inside: Callable[[str], bool]) -> Callable[..., Any]:
    def call(path: Any, *args: Any, **options: Any) -> Any:
        where = _full(path, options.get("dir_fd", options.get("src_dir_fd")))
        if not is_inside(where):
            return _REAL[name](path, *args, **options)
        target = ""
        if name in ("replace", "rename"):
            target = _full(args[0], options.get("dst_dir_fd"))
        do = lambda: _REAL[name](path, *args, **options)  # noqa: E731 (called at once)
        makes = name != "open" or args[0] & os.O_CREAT  # a full disk can still be looked at
        return fault(Call(name if makes else "look", where, do, target=target))

    return call


def _of_file(name: str, fault: Fault) -> Callable[..., Any]:
    def call(fd: int, *args: Any) -> Any:
        path = _path_of(fd)
        half = None
        if name == "write":
            half = lambda: _REAL[name](fd, bytes(args[0])[: len(args[0]) // 2])  # noqa: E731
        return fault(Call(name, path, lambda: _REAL[name](fd, *args), half))

    return call


class _File(io.FileIO):
    """A file whose writes a fault sees."""

    def __init__(self, fd: int, fault: Fault) -> None:
        super().__init__(fd, "w")
        self._path = _path_of(fd)
        self._fault = fault

    def write(self, data: Any) -> int:
        """Write."""
        half = bytes(data)[: len(data) // 2]
        write = super().write
        return int(self._fault(Call("write", self._path, lambda: write(data), lambda: write(half))))
