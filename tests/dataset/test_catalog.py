"""The catalog gives back what was put in, and detects any change to its bytes."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from fastdata.dataset.catalog import builder, format, part, reader
from fastdata.dataset.catalog.builder import CatalogBuilder, CatalogRow
from fastdata.dataset.catalog.format import ABSENT, FIELD, ROW
from fastdata.dataset.catalog.part import in_memory
from fastdata.dataset.catalog.reader import Catalog
from fastdata.errors import CatalogError

U32 = st.integers(0, 2**32 - 1)
TEXT = st.binary(max_size=300).map(lambda text: text.replace(b"\0", b"_"))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of four rows and blocks of 64 bytes, so that a small catalog has many of both."""
    for module in (builder, format, part, reader):
        for name, value in (
            ("PART_BITS", 2),
            ("PART_ROWS", 4),
            ("BLOCK_BITS", 6),
            ("BLOCK", 64),
            ("MAX_TEXT", 64),
        ):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


def build(n: int, fields: tuple[str, ...] = ()) -> CatalogBuilder:
    """A catalog whose numbers all tell the row."""
    builder = CatalogBuilder(fields)
    for i in range(n):
        row = CatalogRow(
            b"k/%d" % i,
            b"k/%d.jpg" % i,
            offset=512 + i,
            length=1000 + i,
            crc=2000 + i,
            shard=i // 3,
            label=i % 5 - 1,
            width=3000 + i,
            height=4000 + i,
            flags=1,
            fields={name: (5000 + i, 6, 7) for name in fields if i % 2},
        )
        builder.append(row)
    return builder


def write(path: Path, builder: CatalogBuilder) -> Path:
    """Writes a catalog file."""
    builder.write(path)
    return path


def read_everything(opened: Catalog) -> None:
    """Touches every section of every part."""
    ids = np.arange(len(opened))
    opened.rows(ids)
    opened.keys(ids)
    opened.column("label")
    for name in opened.field_names:
        opened.field(name, ids)


@pytest.mark.usefixtures("small_parts")
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1), U32, U32, U32, st.integers(-1, 2**31 - 1), U32, U32, U32
        ),
        max_size=13,
    ),
    texts=st.lists(st.tuples(TEXT, TEXT), min_size=13, max_size=13),
    field=st.tuples(st.integers(0, 2**64 - 2), U32, U32),
)
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_rows_come_back_as_they_went_in(
    rows: list[tuple[int, ...]],
    texts: list[tuple[bytes, bytes]],
    field: tuple[int, int, int],
) -> None:
    """Any numbers, keys and names survive, in any order of asking."""
    texts = [(key[:30], name[:30]) for key, name in texts]
    builder = CatalogBuilder(("json",))
    columns = ("offset", "length", "crc", "shard", "label", "width", "height", "flags")
    for row, (key, name) in zip(rows, texts, strict=False):
        numbers = dict(zip(columns, row, strict=True))
        builder.append(CatalogRow(key, name, **numbers, fields={"json": field}))
    pieces = list(builder.encode())
    opened = Catalog.from_parts(pieces[0], lambda part: in_memory(pieces[part + 1]), "it")

    ids = np.arange(len(rows))[::-1]
    found = opened.rows(ids)

    assert len(opened) == len(rows)
    assert [row.tolist()[:8] for row in found[list(columns)]] == rows[::-1]
    expected = [text.decode("utf-8", "surrogateescape") for text, _ in texts[: len(rows)]]
    assert opened.keys(ids) == expected[::-1]
    expected = [text.decode("utf-8", "surrogateescape") for _, text in texts[: len(rows)]]
    assert opened.names(ids) == expected[::-1]
    assert opened.field("json", ids).tolist() == [field] * len(rows)
    assert opened.column("label").tolist() == [row[4] for row in rows]


def test_ids_cross_the_border_of_a_part(tmp_path: Path) -> None:
    """A catalog of more than one full-size part gives every row its own numbers."""
    n = format.PART_ROWS + 2
    opened = Catalog.from_file(write(tmp_path / "c", build(n, ("txt",))))

    ids = np.array([n - 1, 0, format.PART_ROWS, format.PART_ROWS - 1])

    assert opened.rows(ids)["crc"].tolist() == (2000 + ids).tolist()
    assert opened.keys(ids) == [f"k/{i}" for i in ids]
    offsets = [5000 + i if i % 2 else ABSENT for i in ids.tolist()]
    assert opened.field("txt", ids)["offset"].tolist() == offsets
    assert opened.column("crc").tolist() == list(range(2000, 2000 + n))


@pytest.mark.usefixtures("small_parts")
def test_every_flipped_bit_is_detected(tmp_path: Path) -> None:
    """No bit of the file can change unseen: opening or touching everything raises."""
    path = write(tmp_path / "c", build(5, ("json",)))
    good = path.read_bytes()
    read_everything(Catalog.from_file(path))

    silent = []
    with path.open("r+b", buffering=0) as file:
        for bit in range(8 * len(good)):
            place, old = bit // 8, good[bit // 8]
            os.pwrite(file.fileno(), bytes([old ^ 1 << bit % 8]), place)
            try:
                read_everything(Catalog.from_file(path))
                silent.append(bit)
            except CatalogError:
                os.pwrite(file.fileno(), bytes([old]), place)

    assert silent == []


def test_every_other_length_is_detected(tmp_path: Path) -> None:
    """A file that is shorter or longer is refused at opening, before it is mapped."""
    path = write(tmp_path / "c", build(3))
    good = path.read_bytes()

    for length in [*range(len(good)), len(good) + 1, len(good) + 4096]:
        path.write_bytes(good[:length].ljust(length, b"\0"))
        with pytest.raises(CatalogError, match=str(path)):
            Catalog.from_file(path)


@pytest.mark.usefixtures("small_parts")
def test_damage_is_local(tmp_path: Path) -> None:
    """A damaged block breaks the rows in it; others can still be read."""
    path = write(tmp_path / "c", build(12))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1  # in the last part
    path.write_bytes(data)
    opened = Catalog.from_file(path)

    assert opened.rows([0, 7])["crc"].tolist() == [2000, 2007]
    with pytest.raises(CatalogError, match="part 2"):
        opened.keys(range(8, 12))


def test_ids_outside_are_refused(tmp_path: Path) -> None:
    """Negative ids do not count from the end."""
    opened = Catalog.from_file(write(tmp_path / "c", build(3)))

    for ids in ([-1], [3], [0, 2**40]):
        with pytest.raises(IndexError, match="must lie in"):
            opened.rows(ids)


def test_an_unknown_field_is_a_key_error(tmp_path: Path) -> None:
    """Asking for a field that no sample has names the ones there are."""
    opened = Catalog.from_file(write(tmp_path / "c", build(1, ("json",))))

    with pytest.raises(KeyError, match="json"):
        opened.field("txt", [0])


def test_no_catalog_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    """A missing file, another file and another version each get their own words."""
    path = tmp_path / "c"
    with pytest.raises(CatalogError, match="cannot read"):
        Catalog.from_file(path)
    path.write_bytes(b"PK\3\4" * 20)
    with pytest.raises(CatalogError, match="not a catalog"):
        Catalog.from_file(path)
    data = bytearray(b"".join(build(1).encode()))
    data[8] = 2
    path.write_bytes(data)
    with pytest.raises(CatalogError, match="version 2"):
        Catalog.from_file(path)


def test_an_empty_catalog_is_one(tmp_path: Path) -> None:
    """No rows at all is no special case."""
    opened = Catalog.from_file(write(tmp_path / "c", build(0)))

    assert len(opened) == 0
    assert opened.rows([]).shape == (0,)
    assert opened.column("label").shape == (0,)


def test_what_does_not_fit_is_refused() -> None:
    """A NUL in a key, a text over 64 KiB, and a number over its column each raise ValueError."""
    for key, height in ((b"a\0b", 0), (b"a" * 2**16, 0), (b"a", 2**32)):
        with pytest.raises(ValueError, match="a"):
            CatalogBuilder().append(CatalogRow(key, b"", 0, 0, 0, 0, 0, height, 0))


def test_the_digest_is_the_files(tmp_path: Path) -> None:
    """What write returns describes the file that it wrote."""
    size, digest = build(5).write(tmp_path / "c")

    data = (tmp_path / "c").read_bytes()
    assert (size, digest) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
    assert data == b"".join(build(5).encode())


def test_golden_bytes() -> None:
    """The format is fixed to the byte: a change here needs a new version number."""
    assert (ROW.itemsize, FIELD.itemsize) == (40, 16)
    header, part = build(1, ("json",)).encode()

    assert header[:20].hex() == "894644430d0a1a0a01000000440000008bb99611"
    assert header[20:] == b'{"fields":["json"],"parts":[{"crc":3533679580,"text":11}],"rows":1} '
    assert part[:40].hex() == (
        "0002000000000000e8030000d007000000000000ffffffffb80b0000a00f0000010000000b000000"
    )
    assert part[40:56] == b"k/0\0k/0.jpg" + bytes(5)
    assert part[56:72] == b"\xff" * 8 + bytes(8)
    assert part[72:].hex() == "f71143f000000000"


_OVERWRITTEN = """
import sys
import numpy as np
from fastdata.dataset.catalog.reader import Catalog
from fastdata.errors import CatalogError

path, change = sys.argv[1:]
opened = Catalog.from_file(__import__("pathlib").Path(path))
before = opened.rows([0])
with open(path, "r+b") as file:
    if change == "cut short":
        file.truncate(500)
    else:
        file.seek(0)
        file.write(bytes(len(opened) * 40))
assert opened.rows([0]) == before, "what was read stays good"
try:
    opened.rows(np.arange(len(opened)))
except CatalogError as error:
    assert path in str(error) and "restore the file" in str(error)
    print("an error")
"""


@pytest.mark.parametrize("change", ["cut short", "overwritten"])
def test_a_file_that_changes_while_it_is_open_is_an_error(tmp_path: Path, change: str) -> None:
    """``cp`` over a catalog during training ends in an error with its name, and in no signal."""
    path = write(tmp_path / "c", build(20_000))
    arguments = [sys.executable, "-c", _OVERWRITTEN, str(path), change]

    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=240)

    assert (done.returncode, done.stdout) == (0, "an error\n"), done.stderr


def test_memory_of_a_large_catalog_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it what was read is given back, and read again where it is needed."""
    monkeypatch.setattr(reader, "most_held", lambda: 3)
    n = format.PART_ROWS + 5000
    opened = Catalog.from_file(write(tmp_path / "c", build(n, ("txt",))))
    generator = np.random.default_rng(0)

    for _ in range(40):
        ids = generator.integers(0, n, 5)
        assert opened.rows(ids)["crc"].tolist() == (2000 + ids).tolist()
        assert opened.keys(ids) == [f"k/{i}" for i in ids]
        assert opened._held[0] <= 3


def test_threads_and_children_read_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many threads, while memory is given back all the time, and a child get the same rows."""
    monkeypatch.setattr(reader, "most_held", lambda: 4)
    n = 40_000
    opened = Catalog.from_file(write(tmp_path / "c", build(n)))

    def right(seed: int) -> bool:
        ids = np.random.default_rng(seed).integers(0, n, 300)
        return bool((opened.rows(ids)["crc"] == 2000 + ids).all())

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(right, range(200)))
    child = os.fork()
    if child == 0:
        os._exit(0 if right(1000) else 1)

    assert all(found)
    assert os.waitpid(child, 0)[1] == 0
    assert right(1001)
