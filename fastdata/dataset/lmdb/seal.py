"""The seal behind the last page of an LMDB file, and how a file is opened by its two ends.

The seal makes every bit count that the manifest's digests of the groups leave out: its CRC-32C,
cheap enough to be checked whenever a file is opened, covers the meta pages and the seal itself;
its SHA-256 covers in addition the catalog, the manifest and the branch pages.
"""

import os
import stat
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

SEAL = struct.Struct("<8sII QQ 32s")  # magic, version, CRC-32C, end of groups, file size, SHA-256
_MAGIC = b"\x89FDS\r\n\x1a\n"
_VERSION = 1


class Seal(NamedTuple):
    """The trailer of a file.

    Attributes:
        groups_end: Where the groups end and the reserved entries begin.
        size: Bytes of the file, this trailer included.
        digest: SHA-256 from ``groups_end`` to the end of the pages, then of the meta pages, then
            of ``groups_end`` and ``size`` as they are stored.
    """

    groups_end: int
    size: int
    digest: bytes


def seal_text(groups_end: int, size: int) -> bytes:
    """What the digest of a seal covers of the seal itself."""
    return struct.pack("<QQ", groups_end, size)


def encode_seal(seal: Seal, metas: bytes) -> bytes:
    """The trailer of a file with these meta pages."""
    bare = SEAL.pack(_MAGIC, _VERSION, 0, *seal)
    return SEAL.pack(_MAGIC, _VERSION, crc32c(metas + bare), *seal)


def is_sealed(fd: int) -> bool:
    """Whether an open file is an LMDB file of ours, or what is left of one."""
    metas = os.pread(fd, FIRST * PAGE, 0)
    trailer = os.pread(fd, SEAL.size, max(0, os.fstat(fd).st_size - SEAL.size))
    return _is_marked(metas) or trailer.startswith(_MAGIC)


def open_sealed(path: Path) -> tuple[int, Tree, Seal]:
    """Open a file and check that its two ends are, to the bit, what was written.

    Returns:
        Its descriptor, and what the ends say.

    Raises:
        NotADatasetError: There is no such file, or it was never ours.
        ManifestError: There is none yet, but an unfinished pack beside it.
        ShardError: It is truncated, extended, or its header or seal is damaged.
    """
    try:
        # without O_NONBLOCK a FIFO would keep us waiting
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotADatasetError(f"{path}: cannot read: not a regular file")
        size = status.st_size
        metas = os.pread(fd, FIRST * PAGE, 0)
        trailer = os.pread(fd, SEAL.size, max(0, size - SEAL.size))
    except OSError as error:
        raise ShardError(f"{path}: cannot read: {error.strerror}") from error
    if not _is_marked(metas) and not trailer.startswith(_MAGIC):
        if not is_lmdb(metas):
            raise NotADatasetError(f"{path}: not an LMDB file")
        if size >= PAGE:  # below that, our mark may have been cut off
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
