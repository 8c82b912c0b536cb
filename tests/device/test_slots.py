"""Buffers of batches: what is visible is never overwritten, what is not is used again."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from interrupting import interrupted

from fastdata.device.slots import Layout, Ring
from fastdata.errors import DeviceError


def _ring(spare: int = 2) -> Ring:
    return Ring(96, spare=spare, pinned=False)


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_buffer_comes_back() -> None:
    """A buffer that nobody refers to is lent again."""
    ring = _ring()
    lease = ring.lend()
    address = _address(lease)
    del lease

    assert _address(ring.lend()) == address


def test_lending_can_be_interrupted() -> None:
    """A Ctrl-C at any step of lending costs no later lending, and no buffer."""
    ring = Ring(10, spare=2, pinned=False)
    step = 1
    while interrupted(step, ring.lend):
        step += 1
        assert len(ring.lend()) == 10
    gc.collect()
    ring.lend()

    assert step > 5
    assert len(ring._lent) <= 1


def test_views_keep_it_lent() -> None:
    """A tensor, a view of a tensor, and a numpy view of it each keep the buffer from being lent."""
    ring = _ring()
    views: list[Callable[[Any], Any]] = [
        lambda lease: torch.from_numpy(lease).view(2, 4, 4, 3).permute(0, 3, 1, 2),
        lambda lease: torch.from_numpy(lease[:48])[16:],
        lambda lease: Layout((4, 4)).split(torch.from_numpy(lease), 1).pixels.numpy()[0],
        lambda lease: Layout((3, 3)).split(torch.from_numpy(lease), 1).labels,
        lambda lease: lease.reshape(2, 48)[0, 1:],
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


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(("shape", "views"), [((4, 4), 1), ((3, 5), 2), ((1, 1), 1)])
@pytest.mark.parametrize("with_masks", [False, True])
def test_parts_of_a_batch_share_nothing(
    shape: tuple[int, int], views: int, count: int, with_masks: bool
) -> None:
    """Pixels, labels, valid and masks of a batch fill its memory without overlapping."""
    layout = Layout(shape, views, with_masks)
    memory = torch.full((layout.size(count),), 7, dtype=torch.uint8)
    pixels, labels, valid, masks = layout.split(memory, count)
    pixels.zero_()
    labels.copy_(torch.arange(count) - 1)
    valid.fill_(value=True)

    assert pixels.shape == (views * count, *shape, 3)
    assert pixels.is_contiguous()
    assert int(pixels.sum()) == 0
    assert labels.tolist() == list(range(-1, count - 1))
    assert valid.tolist() == [True] * count
    assert (masks is not None) == with_masks
    if masks is not None:
        assert masks.shape == (views * count, *shape)
        assert (masks == 7).all()
        masks.zero_()
    assert int((memory == 7).sum()) < 8  # what is left over aligns the labels


@pytest.mark.parametrize("pinned", [False, True])
def test_no_memory(monkeypatch: pytest.MonkeyPatch, pinned: bool) -> None:
    """Memory that cannot be had, or not be page-locked, is one error that says how much it was."""

    def refuse(*args: Any, **options: Any) -> torch.Tensor:
        assert options["pin_memory"] == pinned
        raise RuntimeError("CUDA error:\n  out of memory")

    ring = Ring(123456, spare=1, pinned=pinned)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", refuse)
        with pytest.raises(DeviceError, match=r"123456 bytes.* CUDA error: out of memory"):
            ring.lend()
    if not pinned:
        assert len(ring.lend()) == 123456
