"""Detects the format of a source by its content."""

import glob
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

from fastdata.converters.sources.formats import mds
from fastdata.converters.sources.formats.arrow import ARROW_FILE, ARROW_STREAM, PARQUET
from fastdata.converters.sources.formats.hdf5 import MAGIC
from fastdata.converters.sources.formats.lmdb import DATA_NAME
from fastdata.converters.sources.formats.tfrecord import is_tfrecord
from fastdata.converters.tar.packed_folder import has_catalog, has_manifest
from fastdata.dataset import manifest
from fastdata.dataset.lmdb.format import PAGE, is_lmdb
from fastdata.dataset.lmdb.seal import is_sealed
from fastdata.errors import OptionError, SourceError
from fastdata.images.probe import sniff
from fastdata.system.untrusted import open_regular, read_json, read_regular

Kind = Literal[
    "folder", "packed", "webdataset", "lmdb", "tfrecord", "parquet", "arrow", "hdf5", "mds"
]
KINDS: tuple[Kind, ...] = (
    *("folder", "packed", "webdataset", "lmdb"),
    *("tfrecord", "parquet", "arrow", "hdf5", "mds"),
)

_WHOLE = ("folder", "packed", "lmdb", "mds")
_BESIDE = (".crc", ".csv", ".idx", ".json", ".jsonl", ".md", ".txt", ".yaml", ".yml")
_MAGIC: dict[str, bytes | tuple[bytes, ...]] = {
    "parquet": PARQUET,
    "arrow": (ARROW_FILE, ARROW_STREAM),
    "hdf5": MAGIC,
}
_PART = re.compile(r"(.+?)[-_.]?\d{5}-of-\d{5}.*")


class Found(NamedTuple):
    """A source whose format was detected.

    Attributes:
        kind: One of ``KINDS``.
        inputs: Paths that must not hold the destination.
        paths: Its files, sorted; of a folder of images, a packed data set, an LMDB or MDS only the
            path of the whole.
        others: Other files of the folder, but for those that such folders often hold.
    """

    kind: Kind
    inputs: tuple[str, ...]
    paths: list[Path]
    others: tuple[str, ...] = ()


def find(source: str | os.PathLike[str], kind: str | None = None) -> Found:
    """Detect what is at a path, or at the paths that match a pattern such as ``data/train-*``.

    A folder whose files are tars, TFRecords, Parquet, Arrow or HDF5 files, and no images, is a
    source of these; any other folder is one of images.

    Args:
        source: A file, a folder, or a pattern.
        kind: Its format, if it cannot be detected.

    Raises:
        OptionError: ``kind`` is none of ``KINDS``.
        SourceError: There is nothing, or files are of several kinds or splits, or of another kind.
    """
    if kind is not None and kind not in KINDS:
        raise OptionError(f"kind must be one of {', '.join(KINDS)}, found {kind!r}")
    text = os.fspath(source)
    path = Path(text)
    if not os.path.lexists(path) and glob.has_magic(text):
        files = sorted(Path(name) for name in glob.glob(text) if os.path.isfile(name))
        return _of_files(text, files, tuple(map(str, files)), kind)
    if path.is_dir():
        return _of_folder(path, kind)
    if kind is None and (not path.is_file() or _kind_of(path) in (None, "image")):
        return Found("folder", (text,), [path])  # listing it says what is wrong
    if kind == "mds" or (kind is None and path.name == mds.INDEX_NAME):
        return _of_folder(path.parent, "mds")
    return _of_files(text, [path], (text,), kind)


def _of_folder(path: Path, kind: str | None) -> Found:
    inputs = (os.fspath(path),)
    whole = _whole(path, kind)
    if whole is not None:
        return Found(whole, inputs, [path])  # type: ignore[arg-type]  # one of KINDS
    try:
        with os.scandir(path) as listed:
            entries = sorted((e for e in listed if e.name[0] != "."), key=lambda e: e.name)
    except OSError as error:
        raise SourceError(f"{path}: cannot list this folder: {error.strerror}") from error
    files = [path / entry.name for entry in entries if entry.is_file()]
    if kind is not None:
        return _of_files(str(path), [f for f in files if _kind_of(f) == kind], inputs, kind)
    found: list[Path] = []
    for file in files:
        what = _kind_of(file)
        if what == "image":  # one is enough to tell a flat folder
            if found:
                raise _ambiguous(path, found[0], f"the image {file.name!r}")
            break
        if what is not None:
            found.append(file)
    if not found:
        return Found("folder", inputs, [path])
    if (folder := next((e.name for e in entries if not e.is_file()), None)) is not None:
        raise _ambiguous(path, found[0], f"the folder {folder!r}")
    rest = sorted(set(files) - set(found))
    others = tuple(file.name for file in rest if file.suffix.lower() not in _BESIDE)
    return _of_files(str(path), found, inputs, None)._replace(others=others)


def _whole(path: Path, kind: str | None) -> str | None:
    """What a folder is as a whole; None if its files decide."""
    if kind is not None:
        return kind if kind in _WHOLE else None
    if _is_packed(path):
        return "packed"
    if os.path.lexists(path / manifest.MARK_NAME):
        raise manifest.absent(path)
    if (path / DATA_NAME).is_file():
        return "lmdb"
    return "mds" if _has_index(path) else None


def _of_files(text: str, files: list[Path], inputs: tuple[str, ...], kind: str | None) -> Found:
    """A source of files that are all of one kind and of one split."""
    if not files:
        raise SourceError(f"{text}: no such file{f' of {kind}' if kind else ''}")
    first = _kind_of(files[0]) if kind is None else kind
    for file in files:
        what = _kind_of(file)
        if what == first:
            continue
        if what is None and kind is not None:
            continue  # the reader of this kind says what is wrong with it
        because = "" if kind else f", as {files[0]} is"
        raise SourceError(
            f"{file}: must be {first}{because}, found {what or 'no known format'}; give a folder "
            f"of images, or files of one of {', '.join(KINDS[1:])}"
        )
    if len(files) > 1 and first in ("lmdb", "packed"):
        raise SourceError(f"{text}: {len(files)} LMDB files; pack one after the other")
    splits = sorted({match[1] for file in files if (match := _PART.fullmatch(file.name))})
    if len(splits) > 1:
        raise SourceError(
            f"{text}: holds parts of {', '.join(splits)}; choose one by a pattern, such as "
            f"'{files[0].parent / splits[0]}-*'"
        )
    return Found(first, inputs, files)  # type: ignore[arg-type]  # one of KINDS


def _kind_of(path: Path) -> str | None:
    """Kind of a file by its first bytes, ``"image"`` for one of those, None for anything else."""
    try:
        with open_regular(path) as fd:
            head = os.pread(fd, PAGE, 0)
            if is_sealed(fd):
                return "packed"
    except OSError:
        return None
    return _container(head) or ("image" if sniff(head[:16]) else None)


def _container(head: bytes) -> str | None:
    """Kind of a file that holds many images."""
    if head and is_lmdb(head):
        return "lmdb"
    if head[257:262] == b"ustar":
        return "webdataset"
    for kind, magic in _MAGIC.items():
        if head.startswith(magic):
            return kind
    return "tfrecord" if is_tfrecord(head) else None


def _is_packed(path: Path) -> bool:
    """Whether a folder was packed, although its manifest may be damaged.

    Only the manifest has the class names, so tars beside one that cannot be read must not pass for
    plain WebDataset.
    """
    if has_catalog(path) or has_manifest(path):
        return True
    name = path / manifest.FILE_NAME
    if not any(path.glob("*.tar")) or not os.path.lexists(name):
        return False
    try:
        return not isinstance(read_json(read_regular(name), str(name), SourceError, ""), dict)
    except (OSError, SourceError):
        return True


def _has_index(path: Path) -> bool:
    try:
        return mds.is_index(read_regular(path / mds.INDEX_NAME))
    except OSError:
        return False


def _ambiguous(path: Path, container: Path, other: str) -> SourceError:
    kind = _kind_of(container)
    return SourceError(
        f"{path}: holds {container.name!r} ({kind}) beside {other}; choose the "
        f"source by --from {kind} or --from folder"
    )
