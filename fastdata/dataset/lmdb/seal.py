"""The seal after the last page of an LMDB file, and opening a file by its two ends.

The seal covers whatever the manifest's digests of the groups do not. Its CRC-32C covers the meta
pages and the seal itself, and is checked whenever a file is opened. Its SHA-256 also covers the
catalog, the manifest and the branch pages.
"""

import os
import struct
from pathlib import Path
from typing import NamedTuple

from fastdata.dataset import manifest
from fastdata.dataset.lmdb.format import (
    ADVICE,
    FIRST,
    MARK,
    MAX_DEPTH,
    PAGE,
    Tree,
    decode_tree,
    is_lmdb,
)
from fastdata.errors import NotADatasetError, ShardError
from fastdata.system.checksum import crc32c
from fastdata.system.untrusted import regular_fd

SEAL = struct.Struct("<8sII QQ 32s")  # magic, version, CRC-32C, end of groups, file size, SHA-256
_MAGIC = b"\x89FDS\r\n\x1a\n"
_VERSION = 1


class Seal(NamedTuple):
    """What the seal of a file says.

    Attributes:
        groups_end: Offset where the groups end and the catalog begins.
        size: Bytes of the file, the seal included.
        digest: SHA-256 from ``groups_end`` to the end of the pages, then of the meta pages, then
            of ``groups_end`` and ``size`` as they are stored.
    """

    groups_end: int
    size: int
    digest: bytes


def seal_text(groups_end: int, size: int) -> bytes:
    """The fields of a seal that its own digest covers."""
    return struct.pack("<QQ", groups_end, size)


def encode_seal(seal: Seal, metas: bytes) -> bytes:
    """Encode the seal of a file with these meta pages."""
    bare = SEAL.pack(_MAGIC, _VERSION, 0, *seal)
    return SEAL.pack(_MAGIC, _VERSION, crc32c(metas + bare), *seal)


def is_sealed(fd: int) -> bool:
    """Whether an open file is an LMDB file that fastdata packed, or what is left of one."""
    metas = os.pread(fd, FIRST * PAGE, 0)
    trailer = os.pread(fd, SEAL.size, max(0, os.fstat(fd).st_size - SEAL.size))
    return _is_marked(metas) or trailer.startswith(_MAGIC)  # damage seldom hits both ends


def open_sealed(path: Path) -> tuple[int, Tree, Seal]:
    """Open a file; its two ends must be, to the bit, what was written.

    Returns:
        Its descriptor, and what the ends say.

    Raises:
        NotADatasetError: There is no such file, or fastdata did not pack it.
        ManifestError: There is only an unfinished pack beside it.
        ShardError: It is truncated, extended, or its header or seal is damaged.
    """
    try:
        fd = regular_fd(path)
    except FileNotFoundError:
        raise manifest.absent(path) from None
    except OSError as error:
        raise NotADatasetError(f"{path}: cannot open: {error.strerror}") from error
    try:
        return fd, *_read_ends(fd, path)
    except BaseException:
        os.close(fd)
        raise


def _read_ends(fd: int, path: Path) -> tuple[Tree, Seal]:
    try:
        size = os.fstat(fd).st_size
        metas = os.pread(fd, FIRST * PAGE, 0)
        trailer = os.pread(fd, SEAL.size, max(0, size - SEAL.size))
    except OSError as error:
        raise ShardError(f"{path}: cannot read: {error.strerror}") from error
    # With one of our marks it is a damaged file of ours, without it somebody else's.
    if not _is_marked(metas) and not trailer.startswith(_MAGIC):
        if not is_lmdb(metas):
            raise NotADatasetError(f"{path}: not an LMDB file")
        if size >= PAGE:  # in less our mark may have been cut off
            raise NotADatasetError(f"{path}: an LMDB file, but not one that fastdata packed")
    return _decode(metas, trailer, size, str(path))


def _is_marked(metas: bytes) -> bool:
    return MARK in (metas[PAGE - len(MARK) : PAGE], metas[-len(MARK) :])


def _decode(metas: bytes, trailer: bytes, size: int, where: str) -> tuple[Tree, Seal]:
    if len(metas) < FIRST * PAGE or len(trailer) < SEAL.size:
        raise ShardError(f"{where}: truncated to {size} bytes; {ADVICE}")
    magic, version, crc, *rest = SEAL.unpack(trailer)
    tree, seal = decode_tree(metas), Seal(*rest)
    if magic != _MAGIC:
        raise ShardError(
            f"{where}: no seal at its end; {size} bytes, its header states "
            f"{tree.pages * PAGE + SEAL.size}: truncated, extended, damaged, or changed by another "
            f"program; {ADVICE}"
        )
    if version != _VERSION:
        raise ShardError(
            f"{where}: its seal is of version {version}, this program reads {_VERSION}"
        )
    if crc32c(metas + SEAL.pack(magic, version, 0, *seal)) != crc:
        raise ShardError(f"{where}: header and seal do not match their checksum; {ADVICE}")
    if not (
        seal.size == size == tree.pages * PAGE + SEAL.size
        and FIRST * PAGE <= seal.groups_end <= tree.pages * PAGE
        and seal.groups_end % PAGE == 0
        and tree.depth <= MAX_DEPTH
    ):
        raise ShardError(f"{where}: {size} bytes, its seal states {seal.size}; {ADVICE}")
    return tree, seal
