"""Reads branch and leaf pages of an LMDB file; checks every offset in them."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fastdata.dataset.lmdb.format import ADVICE, BIG, BRANCH, LEAF, NODE, NUMBER, PAGE, PAGE_HEADER
from fastdata.errors import ShardError


class Node(NamedTuple):
    """A node of a page.

    Attributes:
        key: Its key; empty in the first node of a branch page.
        number: The size of the value in a leaf, the page of the child in a branch.
        big: Whether the value is on overflow pages.
        start: Where the value, or the number of its first overflow page, lies within the page.
    """

    key: bytes
    number: int
    big: bool
    start: int


class Page:
    """A branch or leaf page; nothing in it is used before it is checked.

    Attributes:
        data: Its bytes.
        is_leaf: Whether it is a leaf.
    """

    def __init__(self, data: bytes, number: int, where: str) -> None:
        """Check the header.

        Raises:
            ShardError: It is damaged; so for all below.
        """
        self.data = data
        self._what = f"{where}: page {number}"
        stated, _, flags, self._lower, upper = PAGE_HEADER.unpack_from(data)
        # A page that holds another's number was written to the wrong place, or read from one.
        if stated != number or flags not in (BRANCH, LEAF):
            raise self._damage("is not the page that belongs there")
        # The list of 2-byte offsets grows from the header up, the nodes from the page's end down.
        if self._lower % 2 or not PAGE_HEADER.size + 2 <= self._lower <= upper <= PAGE:
            raise self._damage("has an impossible list of nodes")
        self.is_leaf = bool(flags == LEAF)
        self._count = int((self._lower - PAGE_HEADER.size) // 2)

    def __len__(self) -> int:
        """Number of nodes, at least one."""
        return self._count

    def __getitem__(self, index: int) -> Node:
        """One node."""
        (at,) = struct.unpack_from("<H", self.data, PAGE_HEADER.size + 2 * index)
        if not self._lower <= at <= PAGE - NODE.size:
            raise self._damage("has a node out of bounds")
        number, flags, size = NODE.unpack_from(self.data, at)
        start = at + NODE.size + size
        if not self.is_leaf:  # in a branch, the upper bits of the child's page number
            number |= flags << 32
        # What follows the key: nothing in a branch, in a leaf the value or where it is.
        needed = 0 if not self.is_leaf else NUMBER.size if flags & BIG else number
        if start + needed > PAGE or (self.is_leaf and flags not in (0, BIG)):
            raise self._damage("has an impossible node")
        key = self.data[at + NODE.size : start]
        return Node(key, number, self.is_leaf and bool(flags & BIG), start)

    def __iter__(self) -> Iterator[Node]:
        """All nodes in order."""
        return map(self.__getitem__, range(len(self)))

    def first_overflow(self, node: Node) -> int:
        """Number of the first overflow page of a ``big`` node."""
        return int(NUMBER.unpack_from(self.data, node.start)[0])

    def _damage(self, what: str) -> ShardError:
        return ShardError(f"{self._what} {what}; {ADVICE}")
