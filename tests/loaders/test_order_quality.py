"""What ``fastdata info --order`` says of the orders."""

from pathlib import Path

import numpy as np
import pytest

from fastdata.loaders import order_quality as module
from fastdata.loaders.order_quality import mixing


class _Sorted:
    """A data set of 100,000 samples in 100 classes, packed class by class."""

    fingerprint = "f"

    def __len__(self) -> int:
        return 100_000

    def labels(self) -> np.ndarray:
        return np.repeat(np.arange(100, dtype=np.int32), 1000)

    def close(self) -> None:
        pass


def test_orders_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over classes in a row the full shuffle mixes best, the window less, the data set not."""
    monkeypatch.setattr(module, "open_source", lambda _: _Sorted())

    full, window, packed = mixing("anywhere")

    assert full.labels > 85
    assert 20 < window.labels < full.labels
    assert packed.labels < 2.5
    assert full.neighbours < 0.8
    assert window.neighbours > 0.99
    assert packed.neighbours == 1
    assert full.span > 0.9
    assert window.span < 0.25
    assert packed.span < 0.1


def test_small_data_sets(dataset: Path) -> None:
    """Fewer samples than a batch are one batch."""
    for row in mixing(dataset):
        assert row.labels == 3
