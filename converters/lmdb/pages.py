"""Turns entries, in key order, into the pages of an LMDB file."""

from collections.abc import Callable

from fastdata.converters.lmdb.tree import Leaves
from fastdata.dataset.lmdb.format import (
    BIG,
    FIRST,
    LEAF,
    NUMBER,
    OVERFLOW,
    OVERFLOW_HEADER,
    PAGE,
    ROOM,
    Tree,
    encode_node,
    encode_page,
    is_big,
    node_size,
    overflow_pages,
)

# Hashing and writing release the GIL and queue for it again after the readers, so do it seldom.
_CHUNK = 1 << 20


class PageStream:
    """Writes pages one after the other, each leaf after the overflow pages of its values.

    Args:
        send: Takes pieces of bytes to be written end to end, and their size.
        leaves: The leaf pages so far.
        entries: The entries so far.
        end: Number of the next page.

    Attributes:
        entries: Number of entries.
        end: Number of the next page.
    """

    def __init__(
        self, send: Callable[[list[bytes], int], None], leaves: Leaves, entries: int, end: int
    ) -> None:
        self.entries = entries
        self.end = end
        self._send = send
        self._leaves = leaves
        self._leaf: list[bytes] = []
        self._leaf_key = b""
        self._leaf_bytes = 0
        self._pieces: list[bytes] = []
        self._bytes = 0

    def end_with(self, key: bytes, size: int) -> int:
        """What ``end`` would be after one more entry, its leaf included."""
        big = overflow_pages(size) if is_big(key, size) else 0
        return self.end + bool(self._leaf) + (not self._fits(key, size)) + big

    def put(self, key: bytes, size: int, parts: tuple[bytes, ...]) -> None:
        """Add the next entry, whose value is the parts end to end, ``size`` bytes in all."""
        if not self._fits(key, size):
            self._end_leaf()
            self._leaf_key = key
        if is_big(key, size):
            # The value goes to pages of its own at once, so memory does not grow with it.
            count = overflow_pages(size)
            header = OVERFLOW_HEADER.pack(self.end, 0, OVERFLOW, count)
            node = encode_node(size, BIG, key, NUMBER.pack(self.end))
            self._emit(count, header, *parts, bytes(count * PAGE - len(header) - size))
        else:
            node = encode_node(size, 0, key, b"".join(parts))
        self._leaf.append(node)
        self._leaf_bytes += node_size(key, size)
        self.entries += 1

    def flush(self) -> None:
        """End the open leaf and send all pages so far."""
        self._end_leaf()
        self._send_pieces()

    def finish(self) -> Tree:
        """Send the branch pages, which come last; describe the tree."""
        self.flush()
        depth, behind = 1, self.end
        for level in self._leaves.branches(self.end):
            depth += 1
            self._emit(len(level), *level)
        self._send_pieces()
        leaves = len(self._leaves)
        return Tree(
            depth=depth,
            branches=self.end - behind,
            leaves=leaves,
            overflow=behind - FIRST - leaves,
            entries=self.entries,
            root=self.end - 1,
            pages=self.end,
        )

    def _fits(self, key: bytes, size: int) -> bool:
        """Whether the open leaf takes an entry."""
        return bool(self._leaf) and self._leaf_bytes + node_size(key, size) <= ROOM

    def _end_leaf(self) -> None:
        if self._leaf:
            self._leaves.add(self._leaf_key, self.end)
            self._emit(1, encode_page(self.end, LEAF, self._leaf))
            self._leaf = []
            self._leaf_bytes = 0

    def _emit(self, pages: int, *pieces: bytes) -> None:
        self._pieces += pieces
        self._bytes += pages * PAGE
        self.end += pages
        if self._bytes >= _CHUNK:
            self._send_pieces()

    def _send_pieces(self) -> None:
        if self._pieces:
            self._send(self._pieces, self._bytes)
            self._pieces, self._bytes = [], 0
