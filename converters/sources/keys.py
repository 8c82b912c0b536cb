"""Names of samples: from a path in the source to a key that webdataset reads back unchanged."""

import os
import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

# webdataset takes members under such a first folder for its own metadata and drops them silently.
_META = re.compile(r"__[^/]*__", re.DOTALL)


def stem(name: str) -> str:
    """The last part of a key: a file's name without its extension, dots replaced.

    webdataset and DALI split a member's name at the first dot of its last part; so a key has none
    there.
    """
    return os.path.splitext(name)[0].replace(".", "_")


def clashes(names: list[str]) -> dict[int, int]:
    """Numbers that tell files of one folder apart whose stems are equal.

    The first file of a stem keeps it; the others become stem-2, stem-3 and so on, passing over
    what is another file's stem.

    Args:
        names: File names in sorted order.

    Returns:
        The number for each place among the names that needs one; mostly empty.
    """
    # Hashes in one array: a dictionary of all stems would take 300 MB for 2 million files.
    hashes = np.fromiter((hash(stem(name)) for name in names), np.int64, len(names))
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():
        return {}
    repeated = np.isin(hashes, ordered[1:][ordered[1:] == ordered[:-1]])
    numbers: dict[int, int] = {}
    last: dict[str, int] = {}
    taken = set(ordered.tolist())
    for place in np.flatnonzero(repeated).tolist():
        text = stem(names[place])
        if text not in last:
            last[text] = 1
            continue
        number = last[text] + 1
        while hash(f"{text}-{number}") in taken:
            number += 1
        last[text] = numbers[place] = number
    return numbers


def clashes_among(
    folders: Iterable[Sequence[int]], names: bytes, ends: npt.NDArray[np.int64]
) -> dict[int, int]:
    """Numbers that files of several folders need; the order of the files does not matter to them.

    Args:
        folders: The places of each folder's files.
        names: Paths of all files, one behind the other.
        ends: (N,) where each path ends.

    Returns:
        The number for each place that needs one; of equal names, the first place goes without.
    """
    numbers = {}
    for places in folders:
        files = sorted(
            (os.fsdecode(names[ends[i - 1] if i else 0 : ends[i]].rpartition(b"/")[2]), i)
            for i in places
        )
        for place, number in clashes([name for name, _ in files]).items():
            numbers[files[place][1]] = number
    return numbers


def class_folders(names: tuple[str, ...]) -> dict[str, str]:
    """How class folders are called within keys, where that differs from their name.

    A leading ``__`` that webdataset would take for metadata is shortened to one underscore.
    """
    renamed: dict[str, str] = {}
    taken = set(names)
    for name in names:
        if _META.fullmatch(name):
            base = new = "_" + name.lstrip("_")
            number = 2
            while new in taken:
                new = f"{base}-{number}"
                number += 1
            taken.add(new)
            renamed[name] = new
    return renamed
