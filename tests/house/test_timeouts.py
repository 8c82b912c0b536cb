"""How long a test may take before it counts as a hang."""

import re

import pytest
from places import TESTS

_MARK = re.compile(r"mark\.timeout\((\d+)\)")


def test_the_hard_end_lies_beyond_every_limit(pytestconfig: pytest.Config) -> None:
    """One test that hangs in Python fails by its own limit, and never ends the whole run."""
    own = float(pytestconfig.getini("timeout"))
    files = TESTS.rglob("test_*.py")
    marked = [float(text) for file in files for text in _MARK.findall(file.read_text("utf-8"))]

    assert marked
    assert max(own, *marked) < float(pytestconfig.getini("faulthandler_timeout"))
    assert min(own, *marked) >= 300, "a limit ends a hang, and must not end a slow machine's test"
