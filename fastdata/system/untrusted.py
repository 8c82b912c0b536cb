"""Reading what may come from anybody: regular files of a bounded size, and strict JSON.

The standard library's parser reads the JSON. What it lets through although JSON does not, or the
code that uses the values cannot, is refused here: NaN and infinities, numbers out of range,
repeated names, endless nesting, and text that cannot be written. Then :class:`JsonFields` checks
each field before anybody uses it.
"""

import contextlib
import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from typing import Any, TypeVar

from fastdata.errors import FastdataError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MOST_DEPTH = 64
_MOST_DIGITS = 40  # of an integer: 128 bits have 39, and parsing takes quadratic time
_MOST_COUNT = 2**63 - 1
_TOO_DEEP = f"nested more than {_MOST_DEPTH} deep"
_T = TypeVar("_T")


def regular_fd(path: str | os.PathLike[str]) -> int:
    """Open a regular file for reading, by a link or not; the caller closes the descriptor.

    Raises:
        OSError: It cannot be opened, or is a FIFO, a device or a folder.
    """
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return fd


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open a regular file as :func:`regular_fd` does, for the length of a context."""
    fd = regular_fd(path)
    try:
        yield fd
    finally:
        os.close(fd)


def read_regular(path: str | os.PathLike[str], most: int = 1 << 30) -> bytes:
    """Read a regular file of at most ``most`` bytes.

    Raises:
        OSError: As :func:`open_regular`, or it is larger: a sparse file of any size costs its
            sender nothing, and the reader all memory.
    """
    with open_regular(path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        if os.fstat(fd).st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most} bytes", os.fspath(path))
        return file.read()


def read_json(data: bytes, where: str, error: type[FastdataError], advice: str) -> Any:
    """Parse a JSON text.

    Args:
        data: The text, UTF-8.
        where: The file, and the place in it, for errors.
        error: What to raise if it is not JSON, or not usable.
        advice: What the user can do then.

    Returns:
        Finite numbers, integers of at most 40 digits, text that is Unicode or stands for bytes that
        are not (see :func:`os.fsdecode`), and lists and objects of these, at most 64 deep.
    """
    try:
        content = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
        _check(content, texts=_SURROGATE.search(data) is not None)
    except RecursionError:
        raise error(f"{where}: not JSON: {_TOO_DEEP}; {advice}") from None
    except ValueError as problem:
        text = str(problem) if data.strip() else "it is empty"
        raise error(f"{where}: not JSON: {text}; {advice}") from None
    return content


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice in one object")
    return found


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is out of range")
    return number


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text:.40}... is out of range")
    return int(text)


def _can_be_written(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _check(content: object, *, texts: bool) -> None:
    """Check how deep values are nested, and ``texts`` for halves of surrogate pairs."""
    level = [content]  # level by level: recursion would overflow on what is to be refused
    for _ in range(_MOST_DEPTH):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
                if texts:
                    inner += value
            elif isinstance(value, list):
                inner += value
            elif texts and isinstance(value, str) and not _can_be_written(value):
                raise ValueError(f"the text {value!r:.60} has half a character")
        if not inner:
            return
        level = inner
    raise ValueError(_TOO_DEEP)


class JsonFields:
    """Takes the fields of a JSON object one by one, by name and type, and knows which are left.

    Args:
        where: The file, and the place in it, for errors.
        content: The parsed JSON.
        error: What to raise if a field is missing, unknown or wrong.
        advice: What the user can do then.
    """

    def __init__(
        self, where: str, content: object, error: type[FastdataError], advice: str
    ) -> None:
        self.where = where
        self._error = error
        self._advice = advice
        if not isinstance(content, dict):
            raise self.problem("must be a JSON object")
        self._left: dict[str, Any] = dict(content)

    @classmethod
    def read(cls, data: bytes, where: str, error: type[FastdataError], advice: str) -> "JsonFields":
        """Parse a JSON text that must be an object; arguments as for :func:`read_json`."""
        return cls(where, read_json(data, where, error, advice), error, advice)

    def inner(self, name: str, content: object) -> "JsonFields":
        """The fields of an object within this one, called ``name`` in errors."""
        return JsonFields(f"{self.where}: {name}", content, self._error, self._advice)

    def take(self, name: str, kind: type[_T]) -> _T:
        """Take a field of exactly this type: in JSON, true is not an integer."""
        if name not in self._left:
            raise self.problem(f"no field {name!r}")
        value = self._left.pop(name)
        if type(value) is not kind:
            raise self.problem(f"{name!r} must be {kind.__name__}, found {value!r:.60}")
        return value

    def list_of(self, name: str, kind: type[_T]) -> tuple[_T, ...]:
        """Take a list of values of one type."""
        values = self.take(name, list)
        if any(type(value) is not kind for value in values):
            raise self.problem(f"{name!r} must hold {kind.__name__}s")
        return tuple(values)

    def count(self, name: str) -> int:
        """Take a number of things: an integer from 0 on."""
        value = self.take(name, int)
        if not _is_count(value):
            raise self.problem(f"{name!r} must be 0 or more, and below 2^63, found {value}")
        return value

    def counts(self, name: str) -> dict[str, int]:
        """Take an object whose values are all numbers of things."""
        values = self.take(name, dict)
        if not all(map(_is_count, values.values())):
            raise self.problem(f"{name!r} must hold numbers of 0 or more")
        return values

    def digest(self, name: str) -> str:
        """Take a SHA-256 in the form ``"sha256:..."``."""
        value = self.take(name, str)
        if not _DIGEST.fullmatch(value):
            raise self.problem(f"{name!r} must be sha256:..., found {value!r:.80}")
        return value

    def digest_or_none(self, name: str) -> str | None:
        """Take a digest, or null."""
        if self._left.get(name, "") is None:
            return self.take(name, type(None))
        return self.digest(name)

    def object_or_none(self, name: str) -> "JsonFields | None":
        """Take the fields of an object within this one, or null."""
        if self._left.get(name, "") is None:
            return self.take(name, type(None))
        return self.inner(name, self.take(name, dict))

    def end(self) -> None:
        """Refuse fields that nobody took."""
        if self._left:
            raise self.problem(f"unknown fields {sorted(self._left)}")

    def problem(self, text: str) -> FastdataError:
        """Make the error that says ``text`` of this object."""
        return self._error(f"{self.where}: {text}; {self._advice}")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST_COUNT  # true is an int, but not a count
