"""Finds the columns of images, labels and keys, and reads their values."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fastdata.converters.images.recode import as_npy
from fastdata.converters.sources.builder import Wanted, field_name
from fastdata.converters.sources.fields import encode_text
from fastdata.converters.sources.listing import Unreadable
from fastdata.errors import OptionError, SourceError

ROLES = ("image", "label", "key")

_USUAL = {
    "image": (
        *("image/encoded", "image", "img", "jpg", "jpeg", "png", "webp", "image_bytes"),
        *("image_data", "encoded", "bytes", "images", "imgs", "data", "x"),
    ),
    "label": (
        *("image/class/label", "label", "labels", "cls", "class", "class_id", "target", "targets"),
        *("fine_label", "category", "y"),
    ),
    "key": (
        *("__key__", "key", "image/filename", "filename", "file_name", "image_path", "path"),
        *("image_id", "id"),
    ),
}


def check_columns(columns: Mapping[str, str]) -> None:
    """Check the purposes that columns are named for.

    Raises:
        OptionError: One is not of ``ROLES``.
    """
    for role in columns:
        if role not in ROLES:
            raise OptionError(
                f"columns must name the {', the '.join(ROLES)}, found {role!r}; --fields makes "
                "fields of other columns"
            )


class Columns:
    """The columns of a source, as the user named them or by their usual names.

    Attributes:
        image: Column of the images.
        label: Column of the labels, or None.
        key: Column of the names of samples, or None.
        fields: Column of each field by the name of the field.
    """

    def __init__(
        self,
        where: str,
        names: Iterable[str],
        wanted: Wanted,
        images: tuple[str, ...] | None = None,
    ) -> None:
        """Find them.

        Args:
            where: The source, for errors.
            names: All columns.
            wanted: What the user wants.
            images: Columns that can be images, if the source says so.

        Raises:
            SourceError: There is no column of images, or none of a name that the user gave.
        """
        self._where = where
        self._names = tuple(names)
        self._wanted = wanted
        image = self._choose("image", self._names if images is None else images)
        if image is None and images is not None and len(images) == 1:
            image = images[0]
        if image is None:
            raise SourceError(
                f"{where}: no image column among {self._shown()}; name it with --column image=NAME"
            )
        self.image = image
        others = tuple(name for name in self._names if name != image)
        self.label = self._choose("label", others)
        self.key = self._choose("key", tuple(name for name in others if name != self.label))
        self.fields: dict[str, str] = {}
        for name in wanted.fields:
            self._check(name)
            if self.fields.setdefault(field_name(name), name) != name:
                raise SourceError(
                    f"{where}: fields {name!r} and {self.fields[field_name(name)]!r} would have "
                    "one name"
                )

    def all(self) -> list[str]:
        """All columns that are read, each once."""
        chosen = (self.image, self.label, self.key, *self.fields.values())
        return list(dict.fromkeys(name for name in chosen if name is not None))

    def _choose(self, role: str, names: tuple[str, ...]) -> str | None:
        if role in self._wanted.columns:
            return self._check(self._wanted.columns[role])
        lower = {name.lower(): name for name in reversed(names)}
        return next((lower[usual] for usual in _USUAL[role] if usual in lower), None)

    def _check(self, name: str) -> str:
        if name not in self._names:
            raise SourceError(f"{self._where}: no column {name!r} among {self._shown()}")
        return name

    def _shown(self) -> str:
        more = ", ..." if len(self._names) > 20 else ""
        return ", ".join(sorted(self._names)[:20]) + more


def as_image(value: Any) -> bytes | Unreadable:
    """File content for an image in any form that sources hold.

    Encoded bytes stay as they are, also in a mapping with ``"bytes"``, as Hugging Face writes it.
    Pixels, uint8 of (H, W, 3), (H, W, 1) or (H, W), become an NPY file of (H, W, 3).
    """
    if isinstance(value, Mapping):
        path, value = value.get("path"), value.get("bytes")
        if value is None and path is not None:
            return Unreadable(f"only a path, no image: {str(path)[:200]}")
    if value is None:
        return Unreadable("no image")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if callable(getattr(value, "convert", None)):  # a Pillow image; Pillow need not be installed
        try:
            value = value.convert("RGB")
        except (OSError, SyntaxError, ValueError) as error:  # Pillow raises these for damage
            return Unreadable(f"not an image: {error}")
    return _pixels(value)


def _pixels(value: Any) -> bytes | Unreadable:
    """An array of an image, encoded or not, as bytes."""
    try:
        pixels = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        return Unreadable(f"not an image: {type(value).__name__}: {error}")
    if pixels.dtype == np.uint8 and pixels.ndim == 1:  # as HDF5 holds encoded bytes
        return pixels.tobytes()
    if pixels.dtype == np.uint8 and pixels.ndim in (2, 3) and pixels.shape[2:] in _CHANNELS:
        return as_npy(pixels)
    return Unreadable(
        "not an image: must be encoded bytes, a Pillow image or uint8 (H, W, 3), found "
        f"{type(value).__name__} of {pixels.dtype} {pixels.shape}"
    )


_CHANNELS = ((), (1,), (3,))


def as_field(value: Any, where: str) -> bytes:
    """A value as a field: bytes as they are, text as UTF-8, anything else as canonical JSON.

    Raises:
        SourceError: It cannot be written as JSON.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return encode_text(value, where)
    try:
        plain = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise SourceError(f"{where}: {str(value)[:80]!r} cannot be a field: {error}") from None
    return plain.encode("ascii")


def as_name(value: Any) -> str | bytes | None:
    """A value as the name of a sample."""
    if isinstance(value, np.ndarray | list | tuple) and np.size(value) == 1:
        value = np.asarray(value).reshape(-1)[0]
    if value is None or isinstance(value, str | bytes):
        return value
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _plain(value: Any) -> Any:
    """Arrays as lists, for JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON")
