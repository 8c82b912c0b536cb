"""The native core's reader of LMDB files, against py-lmdb."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import filling
import lmdb
import numpy as np
import pytest
from filling import CHECKSUM, READ, compare_bytes
from lmdb_files import BORDERS, sizes, value, write


def _lmdb(path: Path, values: dict[int, bytes]) -> None:
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 28, lock=False) as file,
        file.begin(write=True) as writing,
    ):
        for key, value in values.items():
            writing.put(key.to_bytes(8, "big"), value)


def _values(core: ModuleType, file: Any, keys: list[int], ranges: list[tuple[int, int]]) -> Any:
    offsets, sizes = np.array(ranges, np.uint32).T.copy()
    return core.LmdbValues(file, np.array(keys, np.uint64), offsets, sizes)


def _sizes(rng: np.random.Generator, count: int) -> list[int]:
    """Inline values, overflow values, and those at the border of the two."""
    kinds = [rng.integers(0, 300, count), rng.integers(1980, 2060, count)]
    kinds.append(rng.integers(3000, 9000, count))
    return [int(size) for size in np.choose(rng.integers(0, 3, count), kinds)]


@pytest.mark.parametrize("spread", [1, 977, 2**50])
def test_lmdb_values_are_lmdbs(native_core: ModuleType, tmp_path: Path, spread: int) -> None:
    """Values of all sizes, in a tree of several levels, are those that py-lmdb wrote and reads."""
    rng = np.random.default_rng(spread)
    values = {n * spread: rng.bytes(size) for n, size in enumerate(_sizes(rng, 5000))}
    _lmdb(tmp_path / "x", values)
    keys = [0, max(values), *map(int, rng.permutation(list(values)))]
    file = native_core.LmdbFile(os.fsencode(tmp_path / "x"))
    threads = filling.pool(native_core, 2)

    ranges = [(0, len(values[key])) for key in keys]
    source = _values(native_core, file, keys, ranges)
    assert compare_bytes(threads, source, [values[key] for key in keys]) is None

    ranges = [(size // 3, size - size // 2) for _, size in ranges]
    parts = [values[k][a : a + n] for k, (a, n) in zip(keys, ranges, strict=True)]
    assert compare_bytes(threads, _values(native_core, file, keys, ranges), parts) is None


def test_lmdb_values_are_ours(native_core: ModuleType, tmp_path: Path) -> None:
    """So are those of files that we wrote, in trees of one level and of three, seal and all."""
    for count in (0, 2000):
        path = tmp_path / f"{count}.lmdb"
        wanted = BORDERS if count == 0 else sizes(count, count)
        write(path, wanted, group=1 << 20)
        file = native_core.LmdbFile(os.fsencode(path))
        source = _values(native_core, file, list(range(len(wanted))), [(0, n) for n in wanted])
        expected = [value(number, size) for number, size in enumerate(wanted)]
        assert compare_bytes(filling.pool(native_core, 2), source, expected) is None


def test_lmdb_says_what_it_lacks(native_core: ModuleType, tmp_path: Path) -> None:
    """A key that there is not, and a part behind a value's end, are failures to read."""
    _lmdb(tmp_path / "x", dict.fromkeys(range(10, 20), b"value"))
    file = native_core.LmdbFile(os.fsencode(tmp_path / "x"))
    for key, part in ((9, (0, 1)), (20, (0, 1)), (2**64 - 1, (0, 1)), (10, (1, 5))):
        source = _values(native_core, file, [10, key], [(0, 5), part])
        failure = compare_bytes(filling.pool(native_core), source, [b"value", b""])
        assert failure is not None
        assert failure[:2] == (1, READ)


def test_lmdb_survives_damage(native_core: ModuleType, tmp_path: Path) -> None:
    """Truncated or with flipped bits, an LMDB file gives errors or the right bytes, no crash."""
    rng = np.random.default_rng(0)
    values = {key: rng.bytes(size) for key, size in enumerate(_sizes(rng, 600))}
    good, bad = tmp_path / "good", tmp_path / "bad"
    _lmdb(good, values)
    data = np.fromfile(good, np.uint8)
    flags = data.reshape(-1, 4096)[:, 10]
    tree = np.flatnonzero(flags[2:] & 3) + 2  # branch and leaf pages; the two before are meta pages
    threads, outcomes = filling.pool(native_core, 2), {"opened": 0, "refused": 0, "failed": 0}
    ranges = [(0, len(value)) for value in values.values()]
    for number in range(400):
        damaged = data.copy()
        if number % 8 == 0:
            damaged = damaged[: int(rng.integers(len(data)))]
        elif number % 8 == 1:
            page, end_of_meta = rng.integers(2), 160
            damaged[page * 4096 + rng.integers(end_of_meta)] ^= 1 << rng.integers(8)
        else:
            within = int(rng.choice([24, 100, 4096]))
            at = rng.choice(tree, 3) * 4096 + rng.integers(0, within, 3)
            damaged[at] ^= (1 << rng.integers(0, 8, 3)).astype(np.uint8)
        damaged.tofile(bad)
        try:
            file = native_core.LmdbFile(os.fsencode(bad))
        except OSError:
            outcomes["refused"] += 1
            continue
        outcomes["opened"] += 1
        source = _values(native_core, file, list(values), ranges)
        failure = compare_bytes(threads, source, list(values.values()))
        if failure is not None:
            assert failure.kind in {READ, CHECKSUM}, failure
            outcomes["failed"] += 1
    assert min(outcomes.values()) > 20, outcomes


def test_lmdb_pages_hold_their_own_number(native_core: ModuleType, tmp_path: Path) -> None:
    """A stale page in the place of a newer one, as a lost write leaves it, is an error."""
    for word in (b"old", b"new"):
        _lmdb(tmp_path / "x", dict.fromkeys(range(10), word))
    pages = np.fromfile(tmp_path / "x", np.uint8).reshape(-1, 4096)
    old, new = (
        next(number for number, page in enumerate(pages) if word in page.tobytes())
        for word in (b"old", b"new")
    )
    pages[new] = pages[old]
    pages.tofile(tmp_path / "x")
    file = native_core.LmdbFile(os.fsencode(tmp_path / "x"))
    source = _values(native_core, file, [7], [(0, 3)])
    failure = compare_bytes(filling.pool(native_core), source, [b"old"])
    assert failure is not None
    assert failure.kind == READ
    assert b"page %d is not the page that belongs there" % new in failure.message


def test_lmdb_paths_need_not_be_text(native_core: ModuleType, tmp_path: Path) -> None:
    """A path that is no UTF-8 is named in the error as Python names it."""
    with pytest.raises(OSError, match="\udcff"):
        native_core.LmdbFile(os.fsencode(tmp_path) + b"/\xff")


@pytest.mark.parametrize("offset", [40, 4096 + 40])
def test_lmdb_page_sizes_are_checked(native_core: ModuleType, tmp_path: Path, offset: int) -> None:
    """A page size of zero, in either meta page, is an error instead of a division by it."""
    _lmdb(tmp_path / "x", {1: b"value"})
    with (tmp_path / "x").open("r+b") as file:
        file.seek(offset)
        file.write(bytes(4))
    with pytest.raises(OSError, match="damaged"):
        native_core.LmdbFile(os.fsencode(tmp_path / "x"))
