"""The ring of buffers: what is visible is never overwritten, what is not is used again."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fastdata.slots import Ring


def _ring(spare: int = 2) -> Ring:
    return Ring((2, 4, 4, 3), spare=spare, pinned=False)


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_buffer_comes_back() -> None:
    """A buffer that nobody refers to is lent again."""
    ring = _ring()
    lease = ring.lend()
    address = _address(lease)
    del lease

    assert _address(ring.lend()) == address


def test_views_keep_it_lent() -> None:
    """A tensor, a view of a tensor, and a numpy view of it each keep the buffer from being lent."""
    ring = _ring()
    views: list[Callable[[Any], Any]] = [
        lambda lease: torch.from_numpy(lease).permute(0, 3, 1, 2),
        lambda lease: torch.from_numpy(lease[:1])[0, 1:],
        lambda lease: torch.from_numpy(lease).permute(0, 3, 1, 2).numpy()[0],
        lambda lease: lease[:1][0, 1:].T,
        memoryview,
    ]
    for view in views:
        lease = ring.lend()
        address, seen = _address(lease), view(lease)
        del lease
        gc.collect()

        other = ring.lend()

        assert _address(other) != address
        del seen, other
        assert _address(ring.lend()) is not None


def test_spare_buffers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many buffers that come back only ``spare`` are kept; the rest is given to the system."""
    ring = _ring(spare=2)
    leases = [ring.lend() for _ in range(6)]
    leases.clear()
    allocated: list[int] = []
    empty = torch.empty

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        allocated.append(1)
        return empty(*args, **options)

    monkeypatch.setattr(torch, "empty", counted)

    leases = [ring.lend() for _ in range(6)]

    assert len(allocated) == 4
