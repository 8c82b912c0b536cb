"""Notes of a tally, taken over one by one, make the same tally as never having stopped."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from fastdata.converters.journal import Tally, encode_report
from fastdata.dataset.catalog import builder, reader
from fastdata.dataset.catalog.builder import CatalogRow
from fastdata.dataset.manifest import Skipped

FIELDS = ("json", "txt")


def add(tally: Tally, number: int) -> None:
    """One more sample; of some things there is none with each."""
    fields = {"json": (number, 3, 4)} if number % 3 else {"txt": (1, 2, number)}
    row = CatalogRow(
        b"key" * (number % 5 + 1),
        b"%d" % number,
        offset=number,
        length=1,
        crc=2,
        shard=number // 3,
        label=number % 2,
        width=4,
        height=5,
        flags=1,
        fields=fields,
    )
    tally.catalog.append(row)
    tally.position += 1
    tally.source_bytes += number
    if number % 4 == 0:
        tally.skipped.append(Skipped(f"{number}\udcff", "empty file"))
        tally.not_recoded["progressive"] += 1
        tally.lossy_notes["turned upright"] += 1


def state(tally: Tally) -> list[object]:
    """All that a tally holds."""
    return [
        list(tally.catalog.encode()),
        *(tally.skipped, tally.not_recoded, tally.lossy_notes),
        *(tally.position, tally.source_bytes, tally.read_bytes, tally.image_bytes),
    ]


@given(counts=st.lists(st.integers(0, 9), max_size=6))
@settings(deadline=None, max_examples=60)
def test_notes_make_the_same_tally(counts: list[int]) -> None:
    """Whatever lies in each note, an empty one and the bound between parts included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "PART_ROWS", 7)
        patch.setattr(reader, "PART_ROWS", 7)
        whole, taken = Tally(FIELDS), Tally(FIELDS)
        number = 0
        for count in counts:
            for _ in range(count):
                add(whole, number)
                number += 1
            taken.take(whole.note(), "it")
            assert state(taken) == state(whole)
        add(whole, number)
        add(taken, number)

        assert state(taken) == state(whole)
        again = Tally(FIELDS)
        with pytest.raises(ValueError, match="do not continue"):
            again.catalog.extend(whole.catalog.since(1) if number else b"\1" + bytes(7 + 72) + b"k")


def test_the_report_is_sorted_ascii() -> None:
    """One line for each entry; bytes that are no text come as escapes of lone surrogates."""
    entries = [Skipped("b", "vanished"), Skipped("b", "empty file"), Skipped("\udcff\u6d77", "x")]

    assert encode_report(entries) == (
        b'{"name": "b", "reason": "empty file"}\n'
        b'{"name": "b", "reason": "vanished"}\n'
        b'{"name": "\\u6d77\\udcff", "reason": "x"}\n'
    ).replace(b"\\u6d77\\udcff", b"\\udcff\\u6d77")
    assert encode_report([]) == b""
