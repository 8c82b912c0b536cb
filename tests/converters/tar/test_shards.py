"""Shards are plain tar files: tarfile, tar(1) and DALI's index find the same members."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from packing import content

from fastdata.converters.destination import Item
from fastdata.converters.journal import Journal
from fastdata.converters.tar.shards import TarWriter, member_header
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.catalog.reader import Catalog
from fastdata.system.checksum import crc32c

PART = st.text(st.characters(codec="ascii", exclude_characters="/\0"), min_size=1, max_size=80)
ASCII_NAMES = (
    st.lists(PART, min_size=1, max_size=6)
    .map("/".join)
    .filter(lambda name: name.strip("/") == name)
)
BYTE_NAMES = st.binary(min_size=1, max_size=400).map(
    lambda name: name.replace(b"\0", b"_").strip(b"/") or b"x"
)


def begun(folder: Path) -> Journal:
    """A journal as a pack begins it."""
    journal = Journal(folder / "journal")
    journal.begin("{}")
    return journal


def item(key: bytes, image: bytes = b"image", label: int = 3, **fields: bytes) -> Item:
    """A sample with an image that the writer does not look into."""
    return Item(key, "jpg", image, label, fields)


def members(path: Path) -> list[tuple[str, bytes]]:
    """Names and contents as Python's tarfile reads them."""
    with tarfile.open(path) as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


@given(name=ASCII_NAMES, size=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_headers_equal_those_of_tarfile(name: str, size: int) -> None:
    """For names in ASCII, long ones included, every byte is the one that tarfile would write."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644

    try:
        expected = info.tobuf(tarfile.USTAR_FORMAT)
    except ValueError:  # the name is too long for USTAR
        expected = info.tobuf(tarfile.PAX_FORMAT)

    assert member_header(name.encode(), size) == expected


@given(name=BYTE_NAMES)
@settings(deadline=None)
def test_any_name_is_read_back(name: bytes) -> None:
    """Names of any bytes and length come out of tarfile as they went in."""
    data = member_header(name, 0) + bytes(1024)

    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as archive:
        found = [member.name.encode("utf-8", "surrogateescape") for member in archive]

    assert found == [name]


def test_members_follow_each_other_by_key(tmp_path: Path) -> None:
    """A sample is its image, its label in ASCII, then its fields; all are where they are said."""
    writer = TarWriter(tmp_path, 10**6, begun(tmp_path))
    first = writer.append(item(b"a/1", b"x" * 513, label=12, json=b"{}", txt=b""))
    second = writer.append(item(b"a/2", b"y", label=-1))
    writer.end_shard(b"")
    (shard,) = writer.finish()

    path = tmp_path / "shard-000000.tar"
    assert sorted(os.listdir(tmp_path)) == ["journal", "shard-000000.idx", "shard-000000.tar"]
    assert members(path) == [
        ("a/1.jpg", b"x" * 513),
        ("a/1.cls", b"12"),
        ("a/1.json", b"{}"),
        ("a/1.txt", b""),
        ("a/2.jpg", b"y"),
        ("a/2.cls", b"-1"),
    ]
    data = path.read_bytes()
    assert data[first.offset :][:513] == b"x" * 513
    offset, length, crc = first.fields["json"]
    assert (data[offset : offset + length], crc) == (b"{}", crc32c(b"{}"))
    assert data[second.offset : second.offset + 1] == b"y"
    assert (first.shard, second.shard, second.fields) == (0, 0, {})
    assert (shard.bytes, shard.samples) == (len(data), 2)
    assert shard.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert data.endswith(bytes(1024))


def test_tar_reads_the_shards(tmp_path: Path) -> None:
    """tar(1) extracts long and odd names with their content as they went in."""
    tar = shutil.which("tar")
    if tar is None or b"GNU" not in subprocess.check_output([tar, "--version"]):
        pytest.skip("no GNU tar here")
    keys = [
        b"plain",
        b"prefix" * 20 + b"/" + b"n" * 90,  # fits USTAR
        b"d" * 120 + b"/" + b"n" * 110,  # needs PAX
        "\u6d77".encode() * 60,
        b"\xff\xfe/\xe4",
        b"long and no UTF-8 \xff" * 9,
        b"a b\nc",
    ]
    (tmp_path / "shards").mkdir()
    (tmp_path / "out").mkdir()
    writer = TarWriter(tmp_path / "shards", 10**6, begun(tmp_path))
    for number, key in enumerate(keys):
        writer.append(item(key, b"%d" % number))
    writer.end_shard(b"")
    writer.finish()

    command = [tar, "xf", "../shards/shard-000000.tar"]
    result = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, check=False)

    assert result.returncode == 0
    # GNU tar reads such names rightly without this keyword of POSIX, and says so.
    complaints = {line.partition(b": ")[2] for line in result.stderr.splitlines()}
    assert complaints == {b"Ignoring unknown extended header keyword 'hdrcharset'"}
    for number, key in enumerate(keys):
        path = os.path.join(os.fsencode(tmp_path / "out"), key + b".jpg")
        with open(path, "rb") as file:
            assert file.read() == b"%d" % number


def test_the_index_points_at_the_data(tmp_path: Path) -> None:
    """Its lines are those of DALI's wds2idx: extension, offset, size, name, for each member."""
    writer = TarWriter(tmp_path, 10**6, begun(tmp_path))
    writer.append(item(b"a/1", b"first", label=7))
    writer.append(item(b"b c/\xff", b"second", label=8, json=b"[]"))
    writer.end_shard(b"")
    (shard,) = writer.finish()

    index = (tmp_path / "shard-000000.idx").read_bytes()
    lines = index.splitlines()

    assert shard.index == f"sha256:{hashlib.sha256(index).hexdigest()}"
    assert lines[0] == b"v1.2 2"
    data = (tmp_path / shard.name).read_bytes()
    words = [word for line in lines[1:] for word in line.split(b" ")]
    entries = [words[i : i + 4] for i in range(0, len(words), 4)]
    assert [(entry[0], entry[3]) for entry in entries] == [
        (b"jpg", b"a/1.jpg"),
        (b"cls", b"a/1.cls"),
        (b"jpg", b"b_c/\xff.jpg"),  # DALI splits lines at blanks
        (b"cls", b"b_c/\xff.cls"),
        (b"json", b"b_c/\xff.json"),
    ]
    assert [data[int(offset) :][: int(size)] for _, offset, size, _ in entries] == [
        b"first",
        b"7",
        b"second",
        b"8",
        b"[]",
    ]
    assert all(int(entry[1]) % 512 == 0 for entry in entries)


@given(sizes=st.lists(st.integers(0, 6000), min_size=1, max_size=15), limit=st.integers(1, 15_000))
@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_shard_exceeds_its_size(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int
) -> None:
    """Shards are as large as they may be, unless a single sample is larger."""
    folder = tmp_path_factory.mktemp("shards")
    writer = TarWriter(folder, limit, begun(folder))
    for number, size in enumerate(sizes):
        sample = item(b"%d" % number, bytes(size))
        writer.append(sample, bytes)
    writer.end_shard(b"")
    shards = writer.finish()

    assert sum(shard.samples for shard in shards) == len(sizes)
    for shard, after in zip(shards, [*shards[1:], None], strict=True):
        content = members(folder / shard.name)
        assert (folder / shard.name).stat().st_size == shard.bytes
        assert shard.bytes <= limit or shard.samples == 1
        if after is not None:
            following = len(members(folder / after.name)[0][1])
            assert shard.bytes + 512 * 3 + -(-following // 512) * 512 > limit
        assert len(content) == 2 * shard.samples


def test_abort_leaves_whole_shards_alone(tmp_path: Path) -> None:
    """The shard that is being written goes; the ones before it, and the journal, stay."""
    writer = TarWriter(tmp_path, 1, begun(tmp_path))
    writer.append(item(b"a"))
    writer.end_shard(b"note")
    writer.append(item(b"b", bytes(2 << 20)))
    writer.sink.join()
    assert (tmp_path / "shard-000001.tar.tmp").exists()

    writer.abort()

    assert sorted(os.listdir(tmp_path)) == ["journal", "shard-000000.idx", "shard-000000.tar"]
    assert [note for _, note in Journal(tmp_path / "journal").read()] == [b"note"]


def test_a_writer_continues_behind_whole_shards(tmp_path: Path) -> None:
    """Two writers in turn make the same files as one, and the second lists the first's shards."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = (TarWriter(tmp_path / name, 1, begun(tmp_path / name)) for name in ("one", "two"))
    for key in (b"a", b"b", b"c"):
        one.append(item(key))
        one.end_shard(key)
    two.append(item(b"a"))
    two.end_shard(b"a")
    two.append(item(b"b"))
    two.sink.join()
    two.abort()

    journal = Journal(tmp_path / "two/journal")
    two = TarWriter(tmp_path / "two", 1, journal, tuple(shard for shard, _ in journal.read()))
    for key in (b"b", b"c"):
        assert two.append(item(key)).shard == key[0] - ord("a")
        two.end_shard(key)

    assert one.finish() == two.finish()
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_the_catalog_lies_beside(tmp_path: Path) -> None:
    """It can be opened, and is described to the byte."""
    builder = CatalogBuilder()
    stored = TarWriter(tmp_path, 1, begun(tmp_path)).put_catalog(builder)

    assert stored.bytes == (tmp_path / "catalog.fdc").stat().st_size
    assert len(Catalog.from_file(tmp_path / "catalog.fdc")) == 0
