"""The journal gives back what was put in, up to the first record that is not whole."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from fastdata.converters.journal import Journal
from fastdata.dataset.manifest import Shard

MARK = '{"options": {}}'


def shard(number: int) -> Shard:
    """A shard that tells its number."""
    digest = f"sha256:{number:064}"
    return Shard(number * 512, digest, f"shard-{number:06d}.tar", number, digest)


def written(path: Path, notes: list[bytes]) -> Journal:
    """A journal with these notes."""
    journal = Journal(path)
    journal.begin(MARK)
    for number, note in enumerate(notes):
        journal.append(shard(number), note)
    return journal


@given(notes=st.lists(st.binary(max_size=200), max_size=5))
@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_what_is_put_in_comes_out(tmp_path: Path, notes: list[bytes]) -> None:
    """Shards and notes in order, and the mark, also through another object."""
    written(tmp_path / "journal", notes)

    journal = Journal(tmp_path / "journal")

    assert journal.mark() == MARK
    assert journal.read() == [(shard(number), note) for number, note in enumerate(notes)]


def test_a_file_that_ends_anywhere(tmp_path: Path) -> None:
    """However few bytes are left, what is read are the records that are whole."""
    path = tmp_path / "journal"
    ends = []
    for count in range(4):
        written(path, [b"a", b"", b"ccc"][:count])
        ends.append(path.stat().st_size)
    data = path.read_bytes()

    for size in range(len(data)):
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in ends) - 1
        assert (Journal(path).mark() == MARK) == (whole >= 0)
        assert len(Journal(path).read()) == max(whole, 0)


def test_any_flipped_bit_is_seen(tmp_path: Path) -> None:
    """What comes back is a beginning of what was put in, whichever byte was changed."""
    path = tmp_path / "journal"
    whole = written(path, [b"a", b"bb"]).read()
    data = path.read_bytes()

    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        found = Journal(path).read()
        assert found == whole[: len(found)]
        assert len(found) < 2


@pytest.mark.parametrize("tail", [b"", b"half a record", bytes(5000)])
def test_it_goes_on_behind_what_is_kept(tmp_path: Path, tail: bytes) -> None:
    """Dropped records and debris are gone, and new ones follow on those that stay."""
    path = tmp_path / "journal"
    journal = written(path, [b"a", b"b", b"c"])
    with path.open("ab") as file:
        file.write(tail)

    journal.keep(2)
    journal.append(shard(7), b"new")

    assert journal.read() == [(shard(0), b"a"), (shard(1), b"b"), (shard(7), b"new")]


def test_where_there_is_none(tmp_path: Path) -> None:
    """Nothing is read, and removing it is no error."""
    journal = Journal(tmp_path / "journal")
    assert (journal.mark(), journal.read()) == (None, [])
    journal.remove()

    journal.begin(MARK)
    journal.remove()

    assert list(tmp_path.iterdir()) == []
