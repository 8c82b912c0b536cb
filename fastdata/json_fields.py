"""Reads a JSON object field by field, so that each is checked by name before it is used."""

import re
from typing import Any, TypeVar

from fastdata.errors import FastdataError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_T = TypeVar("_T")


class JsonFields:
    """Takes the fields out of a JSON object by name and type, and knows what is left.

    Args:
        where: The file, and the place in it, for errors.
        content: What the JSON text holds.
        error: What to raise where a field is not as it should be.
        advice: What the user can do then.
    """

    def __init__(
        self, where: str, content: object, error: type[FastdataError], advice: str
    ) -> None:
        self.where = where
        self._error = error
        self._advice = advice
        if not isinstance(content, dict):
            raise self._problem("must be a JSON object")
        self._left: dict[str, Any] = dict(content)

    def inner(self, name: str, content: object) -> "JsonFields":
        """The fields of an object within this one."""
        return JsonFields(f"{self.where}: {name}", content, self._error, self._advice)

    def take(self, name: str, kind: type[_T]) -> _T:
        """Take a field of exactly this type: to JSON, true is no integer."""
        if name not in self._left:
            raise self._problem(f"no field {name!r}")
        value = self._left.pop(name)
        if type(value) is not kind:
            raise self._problem(f"{name!r} must be {kind.__name__}, found {value!r:.60}")
        return value

    def list_of(self, name: str, kind: type[_T]) -> tuple[_T, ...]:
        """Take a list whose values all have one type."""
        values = self.take(name, list)
        if any(type(value) is not kind for value in values):
            raise self._problem(f"{name!r} must hold {kind.__name__}s")
        return tuple(values)

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

    def count(self, name: str) -> int:
        """Take a number that is not negative."""
        value = self.take(name, int)
        if value < 0:
            raise self._problem(f"{name!r} must be 0 or more, found {value}")
        return value

    def digest(self, name: str) -> str:
        """Take a digest."""
        value = self.take(name, str)
        if not _DIGEST.fullmatch(value):
            raise self._problem(f"{name!r} must be sha256:..., found {value!r:.80}")
        return value

    def end(self) -> None:
        """Check that nothing is left."""
        if self._left:
            raise self._problem(f"unknown fields {sorted(self._left)}")

    def _problem(self, text: str) -> FastdataError:
        return self._error(f"{self.where}: {text}; {self._advice}")
