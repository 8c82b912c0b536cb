"""How the files of an export are called: by their original names, as far as those can be had.

A data set may come from anywhere, so its names are data, not paths: no rule here lets one of them
lead out of the export's folder.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from itertools import count, pairwise

import numpy as np

from fastdata.batch.source import Ids
from fastdata.converters.sources import keys
from fastdata.dataset.catalog.format import ABSENT, FORMAT_MASK
from fastdata.images.probe import EXTENSIONS, FORMATS
from fastdata.loaders.readers.packed import PackedSource

_ENDINGS = {  # that tell the same as the format's own
    "jpeg": {"jpg", "jpeg", "jpe", "jfif"},
    "bmp": {"bmp", "dib"},
    "tiff": {"tif", "tiff"},
}
_CHUNK = 4096  # samples whose names are computed at once
_MOST_PART = 255  # bytes of a file's name, on every common file system
_MOST_PATH = 3072  # bytes of a relative path, so that there is room for the folder's own

# Neither a separator nor a NUL, and no surrogate but those that stand for a byte.
_NEVER = re.compile("[/\0\ud800-\udc7f\udd00-\udfff]")


def encode(name: str) -> bytes:
    """A relative path as the bytes that the catalog holds, whatever the locale."""
    return name.encode("utf-8", "surrogateescape")


class ExportNames:
    """Relative paths of all files of an export, each safe and unlike every other.

    An image keeps its original name with these exceptions:

    - an ending that is not one of the stored format is replaced by that format's;
    - empty parts and ``.`` are left out, a part that begins with a dot (``..`` among them) begins
      with ``_`` instead, and one of more than 255 bytes is cut and gets a hash; so it is with class
      folders;
    - where the first folder is not the one of the sample's label, that one is put before it;
    - where a pack of the export would give it another key, the key takes the name's place, and
      where a folder has the name, its ending is written in capitals;
    - a name that is taken gets ``-2``, ``-3`` and so on.

    Labels without names of classes have their numbers for folders, all with as many digits, and so
    have classes that are called 0, 1, 2 and so on. A field is called as its image
    is, with its own ending.

    Attributes:
        folders: The class folders, in the order of the labels; empty where classes have no names.
    """

    def __init__(self, source: PackedSource) -> None:
        """Look for names in each other's way: two passes over the catalog.

        Only the exceptions are kept; while a folder is looked at, its names are in memory.

        Raises:
            CatalogError: The catalog is damaged.
        """
        self._catalog = source.catalog
        self._classes = source.classes
        labels = source.labels()
        self._digits = len(str(max(labels.max(initial=0), len(source.classes) - 1)))
        self.folders = _unlike([_safe(name) for name in source.classes])
        if source.classes == tuple(map(str, range(len(source.classes)))):
            self.folders = [self._number(label) for label in range(len(source.classes))]
        self._special: dict[tuple[int, str], str] = {}
        hashes = np.empty(len(labels), np.int64)
        folders = set(self.folders)
        for ids in chunks(len(labels)):
            inner = [name.rpartition("/")[0] for name in self._ordinary(ids)]
            hashes[ids] = [hash(folder) for folder in inner]
            folders.update(inner)
        folders |= {above for folder in folders for above in _above(folder)}
        order = np.argsort(hashes, kind="stable")
        ends = np.flatnonzero(np.diff(hashes[order])) + 1
        for start, end in pairwise([0, *ends.tolist(), len(order)]):
            self._look_at(order[start:end], folders)

    def images(self, ids: Ids) -> list[str]:
        """Paths of the images of N samples."""
        ordinary = zip(ids.tolist(), self._ordinary(ids), strict=True)
        return [self._special.get((sample, ""), name) for sample, name in ordinary]

    def field(self, sample: int, image: str, field: str) -> str:
        """Path of a field of the sample whose image has the path ``image``."""
        return self._special.get((sample, field)) or _beside(image, field)

    def why(self, sample: int, original: str, image: str) -> str:
        """Why an image is not called as it was; empty if it is."""
        if image == original:
            return ""
        if (sample, "") in self._special:
            return "name or key of another sample"
        if os.path.splitext(image)[0] == os.path.splitext(original)[0]:
            return "extension of the stored format"
        return "unsafe, too long or outside its class folder"

    def _ordinary(self, ids: Ids) -> list[str]:
        """Paths of the images of N samples, if none is in another's way."""
        rows = self._catalog.rows(ids)
        columns = ids.tolist(), rows["label"].tolist(), (rows["flags"] & FORMAT_MASK).tolist()
        names = self._catalog.names(ids)
        return [self._path(*sample) for sample in zip(*columns, names, strict=True)]

    def _path(self, sample: int, label: int, code: int, name: str) -> str:
        parts = [part for part in name.split("/") if part not in ("", ".")] or ["_"]
        called, folder = self._class_folder(label)
        if folder and parts[0] == called and len(parts) > 1:
            del parts[0]
        parts = [_safe(part) for part in parts]
        stem, ending = os.path.splitext(parts[-1])
        format = FORMATS[code] if code < len(FORMATS) else FORMATS[0]
        if format in EXTENSIONS:
            own = EXTENSIONS[format]
            if ending[1:].lower() not in _ENDINGS.get(format, {own}):
                ending = f".{own}"
        parts[-1] = _safe(stem + ending)
        if len(encode("/".join(parts))) > _MOST_PATH:
            parts = [f"sample-{sample}{ending}"]
        return "/".join([folder, *parts] if folder else parts)

    def _class_folder(self, label: int) -> tuple[str, str]:
        """Name of a label's class and its folder; empty for no label."""
        if 0 <= label < len(self._classes):
            return self._classes[label], self.folders[label]
        if label < 0 or self._classes:
            return "", ""
        return self._number(label), self._number(label)

    def _number(self, label: int) -> str:
        """A label with as many digits as the others: folders are sorted as text."""
        return f"{label:0{self._digits}}"

    def _look_at(self, ids: Ids, folders: set[str]) -> None:
        """Find the exceptions among the samples of one folder."""
        ordinary = self._ordinary(ids)
        paths = self._named_by_key(ids, ordinary, folders)
        taken: set[str] = set()
        for place, sample in enumerate(ids.tolist()):
            paths[place] = _free(paths[place], taken, folders)
            if paths[place] != ordinary[place]:
                self._special[sample, ""] = paths[place]
        for field in self._catalog.field_names:
            has = self._catalog.field(field, ids)["offset"] != ABSENT
            for place in np.flatnonzero(has).tolist():
                wanted = _beside(paths[place], field)
                path = _free(wanted, taken, folders)
                if path != wanted:
                    self._special[int(ids[place]), field] = path

    def _named_by_key(self, ids: Ids, ordinary: list[str], folders: set[str]) -> list[str]:
        """Paths of a folder's images for which a pack finds the keys that they have."""
        wanted = [key.rpartition("/")[2] for key in self._catalog.keys(ids)]
        paths, kept = [_no_folder(path, folders) for path in ordinary], set(range(len(ids)))
        while True:
            names = [path.rpartition("/")[2] for path in paths]
            order = sorted(range(len(names)), key=names.__getitem__)
            numbers = keys.clashes([names[place] for place in order])
            wrong = [
                place
                for at, place in enumerate(order)
                if place in kept
                and wanted[place]
                != keys.stem(names[place]) + (f"-{numbers[at]}" if at in numbers else "")
            ]
            if not wrong:
                return paths
            for place in wrong:
                head, slash, last = ordinary[place].rpartition("/")
                name = _safe((wanted[place] or "_") + os.path.splitext(last)[1])
                paths[place] = _no_folder(head + slash + name, folders)
            kept.difference_update(wrong)


def chunks(samples: int) -> Iterator[Ids]:
    """The ids from 0 on, some thousands at a time."""
    for start in range(0, samples, _CHUNK):
        yield np.arange(start, min(start + _CHUNK, samples), dtype=np.int64)


def _safe(part: str) -> str:
    """A part of a path that stays below its folder, is not hidden, and fits."""
    part = _NEVER.sub("_", part)
    if not part or part[0] == ".":
        part = "_" + part[1:]
    whole = encode(part)
    if len(whole) <= _MOST_PART:
        return part
    ending = encode(os.path.splitext(part)[1])[-32:]
    mark = b"-" + hashlib.sha256(whole).hexdigest()[:16].encode()
    room = _MOST_PART - len(mark) - len(ending)
    start = whole[:room].decode("utf-8", "ignore" if _is_text(part) else "surrogateescape")
    return start + (mark + ending).decode("utf-8", "surrogateescape")


def _is_text(part: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in part)


def _beside(image: str, field: str) -> str:
    head, slash, last = image.rpartition("/")
    return head + slash + _safe(f"{os.path.splitext(last)[0]}.{field}")


def _no_folder(path: str, folders: set[str]) -> str:
    """The path, its ending in capitals if a folder is called so: that leaves the key alone."""
    if path not in folders:
        return path
    stem, ending = os.path.splitext(path)
    return stem + ending.upper()


def _free(path: str, taken: set[str], folders: set[str]) -> str:
    """The path, or the first numbered one that no file or folder has; it is taken then."""
    head, slash, last = path.rpartition("/")
    stem, ending = os.path.splitext(last)
    numbers = count(2)
    while path in taken or path in folders:
        path = head + slash + _safe(f"{stem}-{next(numbers)}{ending}")
    taken.add(path)
    return path


def _unlike(names: Iterable[str]) -> list[str]:
    taken: set[str] = set()
    return [_free(name, taken, set()) for name in names]


def _above(folder: str) -> Iterator[str]:
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        yield folder
