"""A damaged LMDB file gives the right bytes or an error of ours, in every byte of it: no signal."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import filling
import numpy as np
import pytest
from filling import CHECKSUM, READ, compare_bytes
from jpegs import Pixels
from packing import picture
from strides import EVERY

import fastdata as fd
from fastdata.converters.pack import pack
from fastdata.dataset.lmdb.file import open_file
from fastdata.errors import FastdataError, NotADatasetError
from fastdata.loaders.readers.packed import LMDBSource

Case = tuple[str, bytes]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty images in six groups, inline and on overflow pages, unlabelled."""
    root = tmp_path_factory.mktemp("damage")
    (root / "images").mkdir()
    rng = np.random.default_rng(0)
    for number in range(30):
        data = picture(number)
        if number % 3 == 0:  # a comment behind the start makes it a large value
            filler = rng.integers(1, 255, 3000 + 100 * number, np.uint8).tobytes()
            length = (len(filler) + 2).to_bytes(2, "big")
            data = data[:2] + b"\xff\xfe" + length + filler + data[2:]
        (root / "images" / f"{number:02}.jpg").write_bytes(data)
    report = pack(root / "images", root / "good.lmdb", shard_size=20_000, keep_bytes=True)
    assert report.shards > 4
    return root / "good.lmdb"


def pages_of(data: bytes) -> dict[str, list[int]]:
    """Numbers of the pages by kind, told by the flags in their headers."""
    found: dict[str, list[int]] = {"meta": [], "branch": [], "leaf": [], "overflow": []}
    number, kinds = 0, {1: "branch", 2: "leaf", 4: "overflow", 8: "meta"}
    while number < len(data) // 4096:
        head = data[number * 4096 : number * 4096 + 16]
        kind = kinds[int.from_bytes(head[10:12], "little")]
        found[kind].append(number)
        number += int.from_bytes(head[12:16], "little") if kind == "overflow" else 1
    return found


def places(data: bytes) -> Iterator[tuple[str, int]]:
    """Bytes to damage: headers, lists, nodes, and samples of what lies between."""
    rng = np.random.default_rng(1)
    for kind, numbers in pages_of(data).items():
        for number in numbers:
            start = number * 4096
            head = {"meta": 152, "branch": 64, "leaf": 32, "overflow": 16}[kind]
            step = 1 if number == numbers[0] else 3
            yield from ((kind, start + at) for at in range(0, head, step))
            yield from ((kind, start + int(at)) for at in rng.integers(head, 4096, 4))
            if kind in ("branch", "leaf"):  # the nodes' own headers, keys and page numbers
                upper = int.from_bytes(data[start + 14 : start + 16], "little")
                inside = range(upper, 4096) if upper > 3900 else rng.integers(upper, 4096, 20)
                yield from ((f"{kind} node", start + int(at)) for at in inside)
    yield from (("seal", at) for at in range(len(data) - 64, len(data)))


def flips(data: bytes) -> Iterator[Case]:
    """A bit, or a whole byte, at each of the places."""
    for number, (kind, at) in enumerate(places(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF if number % 5 == 0 else 1 << number % 8
        yield f"{kind} byte {at}", bytes(damaged)


def lengths(data: bytes) -> Iterator[Case]:
    """Truncations and extensions."""
    for size in (0, 1, 100, 4096, 5000, 8192, *range(9000, len(data), 5001), len(data) - 1):
        yield f"cut to {size}", data[:size]
    for more in (b"\0", bytes(4096), data[-64:], data):
        yield f"extended by {len(more)}", data + more


def pages(data: bytes) -> Iterator[Case]:
    """Pages of zeros, of ones, and pages in the place of others."""
    rng = np.random.default_rng(2)
    count = len(data) // 4096
    for number in range(count):
        cut = number * 4096, number * 4096 + 4096
        other = int(rng.integers(0, count)) * 4096
        for what, page in (
            ("zeros", bytes(4096)),
            ("ones", b"\xff" * 4096),
            ("another", data[other : other + 4096]),
        ):
            yield f"page {number} of {what}", data[: cut[0]] + page + data[cut[1] :]


def check_python(path: Path, right: list[bytes]) -> str:
    """Read every sample in Python."""
    outcome = "right"
    source = LMDBSource(path)
    for number, expected in enumerate(right):
        try:
            assert source.read(number) == expected
        except FastdataError:
            outcome = "wrong"
    return outcome


def check_native(core: ModuleType, threads: object, path: Path, right: list[bytes]) -> str:
    """Read every sample with the native core, as a batch of its own."""
    outcome = "right"
    source = LMDBSource(path)
    for number, expected in enumerate(right):
        ids = np.array([number], np.int64)
        try:
            encoded = source.encoded(core, ids, source.rows(ids))
        except FastdataError:
            outcome = "wrong"
            continue
        failure = compare_bytes(threads, encoded, [expected])
        assert failure is None or failure.kind in {READ, CHECKSUM}, failure
        outcome = outcome if failure is None else "wrong"
    return outcome


def check_walk(path: Path) -> None:
    """Walk through all entries."""
    for _, place in open_file(path).walk():
        assert place.size < 1 << 24


@EVERY
@pytest.mark.parametrize("kind", [flips, lengths, pages])
def test_damage_is_an_error_or_harmless(
    good: Path, kind: Callable[[bytes], Iterator[Case]], native_core: ModuleType, step: int
) -> None:
    """Every sample comes right or with an error, from Python and from the native core alike."""
    data = good.read_bytes()
    right = [LMDBSource(good).read(number) for number in range(30)]
    bad = good.with_name("bad.lmdb")
    threads = filling.pool(native_core)
    outcomes: Counter[str] = Counter()
    for what, damaged in islice(kind(data), 0, None, step):
        if damaged == data:
            continue
        bad.write_bytes(damaged)
        try:
            check_walk(bad)
        except NotADatasetError:
            pytest.fail(f"{what}: it was ours")
        except FastdataError:
            pass
        try:
            outcomes[check_python(bad, right)] += 1
            outcomes[check_native(native_core, threads, bad, right)] += 1
        except NotADatasetError:
            pytest.fail(f"{what}: it was ours")
        except FastdataError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 10 // step
    if kind is flips:
        assert outcomes["wrong"] > 100 // step, outcomes
        assert outcomes.total() > 800 // step, outcomes


@pytest.mark.parametrize("core", [True, False])
def test_loaders_raise_or_are_right(
    good: Path, monkeypatch: pytest.MonkeyPatch, core: bool
) -> None:
    """Batches of a damaged file are those of the whole one, or an error comes."""
    if not core:
        monkeypatch.setattr("fastdata.native.load", lambda: None)

    def batches(path: Path) -> Pixels:
        loader = fd.Loader(path, 8, crop=fd.CenterCrop(16), shuffle=False, threads=1)
        found = np.concatenate([batch.images.numpy() for batch in loader])
        loader.close()
        return found

    right = batches(good)
    data = good.read_bytes()
    bad = good.with_name("bad.lmdb")
    outcomes: Counter[str] = Counter()
    for _, damaged in [*flips(data)][:: 40 if core else 80]:
        bad.write_bytes(damaged)
        try:
            assert np.array_equal(batches(bad), right)
            outcomes["right"] += 1
        except FastdataError:
            outcomes["error"] += 1
    assert outcomes["error"] > 3, outcomes
