"""The tree above the leaf pages of an LMDB file that is written from front to back."""

import os
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from fastdata.dataset.lmdb.format import (
    BRANCH,
    FIRST,
    PAGE,
    ROOM,
    encode_node,
    encode_page,
    sample_key,
)
from fastdata.dataset.lmdb.page import Page
from fastdata.errors import ShardError


class Leaves:
    """The leaf pages so far, 16 bytes for each: its number and its first key."""

    def __init__(self) -> None:
        self._samples = array("Q")  # the first id of each leaf of samples
        self._reserved: list[bytes] = []  # the first key of each later leaf
        self._numbers = array("Q")

    def __len__(self) -> int:
        """Number of leaf pages."""
        return len(self._numbers)

    def add(self, key: bytes, number: int) -> None:
        """Add the next leaf.

        Args:
            key: Its first one, of a sample (8 bytes) or reserved (longer).
            number: Of its page.
        """
        if len(key) == len(sample_key(0)):
            self._samples.append(int.from_bytes(key, "big"))
        else:
            self._reserved.append(key)
        self._numbers.append(number)

    def branches(self, number: int) -> Iterator[list[bytes]]:
        """Yield the branch pages of each level from the lowest to the root alone.

        Args:
            number: Of the first branch page; the others follow it.
        """
        keys = chain(map(sample_key, self._samples), self._reserved)
        children: Iterable[tuple[bytes, int]] = zip(keys, self._numbers, strict=True)
        count = len(self)
        while count > 1:
            pages: list[bytes] = []
            above: list[tuple[bytes, int]] = []
            for group in _groups(children, count):
                # LMDB never compares a branch page's first key, so it is left empty.
                nodes = [encode_node(group[0][1], 0, b"")]
                nodes += [encode_node(child, 0, key) for key, child in group[1:]]
                above.append((group[0][0], number + len(pages)))
                pages.append(encode_page(number + len(pages), BRANCH, nodes))
            yield pages
            number += len(pages)
            children, count = above, len(above)


def _groups(children: Iterable[tuple[bytes, int]], count: int) -> Iterator[list[tuple[bytes, int]]]:
    """Distribute children among branch pages, at least two to each, as LMDB requires."""
    group: list[tuple[bytes, int]] = []
    used = 0
    for place, child in enumerate(children):
        size = 2 + len(encode_node(0, 0, child[0] if group else b""))
        if used + size > ROOM:
            # The last child alone would be a page of one, so it takes another along.
            last = [group.pop()] if place == count - 1 else []
            yield group
            group = last
            used = sum(2 + len(encode_node(0, 0, b"")) for _ in group)
            size = 2 + len(encode_node(0, 0, child[0] if group else b""))
        group.append(child)
        used += size
    yield group


def find_leaves(fd: int, path: Path, end: int, samples: int) -> Leaves:
    """Find the leaf pages of groups that an interrupted pack left, from the last one backwards.

    A leaf comes after the overflow pages of its values, so the page before the first of those is
    the leaf before.

    Args:
        fd: The file, open for reading.
        path: Its name, for errors.
        end: Number of the page after the last group.
        samples: Number of samples in the groups.

    Raises:
        ShardError: The pages do not hold so many samples.
        OSError: The file cannot be read.
    """
    found = []
    left = samples
    while end > FIRST:
        number = end - 1
        data = os.pread(fd, PAGE, number * PAGE)
        if len(data) < PAGE:
            raise _damaged(path)
        page = Page(data, number, str(path))
        nodes = list(page)
        left -= len(nodes)
        if not page.is_leaf or left < 0 or nodes[0].key != sample_key(left):
            raise _damaged(path)
        found.append((nodes[0].key, number))
        # Values of this leaf lie before it, so the leaf before ends where they begin.
        end = min([number, *(page.first_overflow(node) for node in nodes if node.big)])
    if left or end < FIRST:
        raise _damaged(path)
    leaves = Leaves()
    for key, number in reversed(found):
        leaves.add(key, number)
    return leaves


def _damaged(path: Path) -> ShardError:
    return ShardError(
        f"{path}: what an interrupted pack wrote is damaged; pack again with --overwrite"
    )
