"""Places that a test goes through one by one: some each day, all of them in `make nightly`."""

import pytest

EVERY = pytest.mark.parametrize(
    "step", [7, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"]
)
