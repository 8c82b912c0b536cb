"""LMDB's format on disk (data version 1), as far as one sorted bulk load needs it.

A file consists of little-endian pages of 4096 bytes on every machine: two meta pages; leaf pages
and the overflow pages of large values; branch pages, the root last. Our seal follows the last page.
Structures and limits are those of libraries/liblmdb/mdb.c, whose names stand beside them.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

CATALOG_KEY = b"fastdata:catalog"
MANIFEST_KEY = b"fastdata:manifest"

PAGE = 4096
FIRST = 2  # the first page after the two meta pages: groups begin here
MAX_VALUE = 0xFFFFFFFF  # MAXDATASIZE
MAX_DEPTH = 32  # CURSOR_STACK

PAGE_HEADER = struct.Struct("<QHHHH")  # MDB_page: number, 0, flags, lower, upper
OVERFLOW_HEADER = struct.Struct("<QHHI")  # MDB_page: number, 0, flags, count of pages
NODE = struct.Struct("<IHH")  # MDB_node: size of the value or page number, flags, size of the key
NUMBER = struct.Struct("<Q")  # of the first overflow page, in place of a value
ROOM = PAGE - PAGE_HEADER.size  # for nodes, each with 2 bytes in the list of them

BRANCH, LEAF, OVERFLOW, META = 0x01, 0x02, 0x04, 0x08  # P_BRANCH and so on
BIG = 0x01  # F_BIGDATA: the value is on overflow pages

_NODE_MAX = (ROOM // 2 & ~1) - 2  # me_nodemax: a longer node goes to overflow pages
_DB = struct.Struct("<IHHQQQQQ")  # MDB_db: pad, flags, depth, branches, leaves, overflow, n, root
# Page header, then MDB_meta: magic, version, address, size of the map, two MDB_db, last page,
# number of the transaction. LMDB ignores the rest of the page, whose end is our mark.
_META = struct.Struct("<QHHI IIQQ 48s 48s QQ")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_NOWHERE = (1 << 64) - 1  # P_INVALID
_INTEGER_KEYS = 0x08  # MDB_INTEGERKEY, of the free list's keys
MARK = b"fastdata lmdb 1\n"

ADVICE = "restore the file, or pack again with --overwrite"


def sample_key(number: int) -> bytes:
    """Key of a sample by its id."""
    return number.to_bytes(8, "big")


def part_key(number: int) -> bytes:
    """Key of a part of the catalog."""
    return b"%b:%08d" % (CATALOG_KEY, number)


def is_big(key: bytes, size: int) -> bool:
    """Whether a value of this size goes to overflow pages."""
    return NODE.size + len(key) + size > _NODE_MAX


def node_size(key: bytes, size: int) -> int:
    """Bytes that an entry takes in a leaf page, with its offset in the list of nodes."""
    within = NUMBER.size if is_big(key, size) else size
    return 2 + (NODE.size + len(key) + within + 1 & ~1)


def overflow_pages(size: int) -> int:
    """Number of overflow pages of a value, which have one header for all (OVPAGES)."""
    return -(-(PAGE_HEADER.size + size) // PAGE)


def encode_node(number: int, flags: int, key: bytes, data: bytes = b"") -> bytes:
    """Encode a node of a branch or leaf page.

    Args:
        number: The size of the value in a leaf, the page of the child in a branch.
        flags: ``BIG`` or 0.
        key: The key.
        data: In a leaf the value, or the ``NUMBER`` of its first overflow page.
    """
    low, high = number & 0xFFFFFFFF, number >> 32
    node = NODE.pack(low, flags | high, len(key)) + key + data
    return node if len(node) % 2 == 0 else node + b"\0"


def encode_page(number: int, flags: int, nodes: Sequence[bytes]) -> bytes:
    """Encode a branch or leaf page of nodes that fit, in the order of their keys."""
    lower = PAGE_HEADER.size + 2 * len(nodes)
    upper = PAGE
    places = []
    for node in nodes:
        upper -= len(node)
        places.append(upper)
    header = PAGE_HEADER.pack(number, 0, flags, lower, upper)
    listed = struct.pack(f"<{len(places)}H", *places)
    return b"".join((header, listed, bytes(upper - lower), *reversed(nodes)))


class Tree(NamedTuple):
    """What a meta page says of the entries.

    Attributes:
        depth: Levels of the tree.
        branches: Number of branch pages.
        leaves: Number of leaf pages.
        overflow: Number of overflow pages.
        entries: Number of entries.
        root: Page number of the root.
        pages: Number of pages of the file.
    """

    depth: int
    branches: int
    leaves: int
    overflow: int
    entries: int
    root: int
    pages: int


def encode_metas(tree: Tree) -> bytes:
    """Encode both meta pages: that of an empty file, and of the transaction that filled it."""
    size = tree.pages * PAGE
    free = _DB.pack(PAGE, _INTEGER_KEYS, 0, 0, 0, 0, 0, _NOWHERE)
    empty = _DB.pack(0, 0, 0, 0, 0, 0, 0, _NOWHERE)
    full = _DB.pack(0, 0, *tree[:-1])
    pages = []
    for number, entries, last in ((0, empty, FIRST - 1), (1, full, tree.pages - 1)):
        head = (number, 0, META, 0, _MAGIC, _VERSION, 0, size)
        page = _META.pack(*head, free, entries, last, number)
        pages.append(page.ljust(PAGE - len(MARK), b"\0") + MARK)
    return b"".join(pages)


def decode_tree(metas: bytes) -> Tree:
    """Decode the second meta page."""
    entries, last = _META.unpack_from(metas, PAGE)[9:11]
    depth, branches, leaves, overflow, count, root = _DB.unpack(entries)[2:]
    return Tree(depth, branches, leaves, overflow, count, root, last + 1)


def is_lmdb(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an LMDB file, or the beginning of one."""
    known = PAGE_HEADER.pack(0, 0, META, 0, 0) + struct.pack("<II", _MAGIC, _VERSION)
    return head[16:24] == known[16:] if len(head) >= len(known) else known.startswith(head)
