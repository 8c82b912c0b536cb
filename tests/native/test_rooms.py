"""The rooms of the native core: each includes those before it, and only the last knows Python."""

import re
from pathlib import Path

import pytest

CSRC = next(path / "csrc" for path in Path(__file__).parents if (path / "csrc").is_dir())
ROOMS = ("base", "jpeg", "resize", "files", "pool", "bind")


def test_rooms_are_all_there_are() -> None:
    """The order names every folder of csrc/."""
    assert {path.name for path in CSRC.iterdir() if path.is_dir()} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_include_earlier_ones(room: str) -> None:
    """Nothing is included from a later room, and Python's headers from bind/ alone."""
    allowed = ROOMS[: ROOMS.index(room) + 1]
    for path in (CSRC / room).iterdir():
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r'#include "(\w+)/', text)) <= set(allowed), path
        assert room == "bind" or not re.search("#include <(Python|nanobind)", text), path
