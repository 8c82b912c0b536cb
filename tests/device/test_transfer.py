"""Copies to a device that is late: nothing is overwritten before it was copied and read."""

from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from streams import LateStreams

import fastdata as fd
from fastdata.batch.decoder import BatchDecoder, PendingBatch, Pixels, Work
from fastdata.device import transfer
from fastdata.device.slots import Arrived, Layout, Ring
from fastdata.device.transfer import Transfer
from fastdata.errors import DeviceError, OptionError, StalledError
from fastdata.loaders import pipeline
from fastdata.loaders.loader import Loader
from fastdata.loaders.options import usable_device

_LAYOUT = Layout((3, 5), masks=True)
_MOST = 4


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes on the simulated device alone."""
    monkeypatch.setattr(transfer, "_LOOK", 0.0)


def _filled(ring: Ring, step: int) -> tuple[torch.Tensor, Arrived]:
    """A host buffer with the batch of a step, and what must arrive of it."""
    noise = np.random.default_rng(step)
    count = int(noise.integers(1, _MOST + 1))
    memory = torch.from_numpy(ring.lend())[: _LAYOUT.size(count)]
    pixels, labels, valid, masks = _LAYOUT.split(memory, count)
    assert masks is not None
    masks.copy_(torch.from_numpy(noise.integers(0, 256, masks.shape, np.uint8)))
    pixels.copy_(torch.from_numpy(noise.integers(0, 256, pixels.shape, np.uint8)))
    labels.copy_(torch.arange(count) + step)
    valid.copy_(torch.arange(count) % 2 == step % 2)
    images = pixels.permute(0, 3, 1, 2).clone()
    return memory, Arrived(images, labels.clone(), valid.clone(), masks.clone())


def _changed(streams: LateStreams, *, steps: int, slots: int, spare: int = 99) -> tuple[int, int]:
    """Send batches, some ahead, and count changed bytes and host buffers lent at a time."""
    ring = Ring(_LAYOUT.size(_MOST), spare=spare, pinned=False)
    way = Transfer(streams, _LAYOUT, most=_MOST, slots=slots)
    ahead: deque[transfer.InFlight] = deque()
    expected, found = [], []
    lent = 0
    for step in range(steps):
        memory, content = _filled(ring, step)
        expected.append(content)
        ahead.append(way.start(memory, len(content.labels)))
        del memory
        if len(ahead) == slots or not way.ready():
            found.append(way.receive(ahead.popleft()))
        lent = max(lent, len(ring._lent))
    found += [way.receive(batch) for batch in ahead]
    streams.finish()
    way.close()
    pairs = [
        (one, other)
        for arrived, content in zip(found, expected, strict=True)
        for one, other in zip(arrived[:4], content[:4], strict=True)
        if one is not None and other is not None
    ]
    assert len(pairs) == 4 * steps
    assert all(one.shape == other.shape and one.dtype == other.dtype for one, other in pairs)
    return sum(int((one != other).sum()) for one, other in pairs), lent


@pytest.mark.parametrize(("stall", "slots"), [(0.95, 3), (0.95, 1), (0.5, 3), (0.05, 2)])
def test_a_stalled_consumer_gets_its_bytes(stall: float, slots: int) -> None:
    """In 1,000 steps on a late device no byte changes, and memory is that of a few batches."""
    streams = LateStreams(7, stall=stall)

    changed, lent = _changed(streams, steps=1000, slots=slots)

    assert changed == 0
    assert streams.allocated <= slots
    assert lent <= 2 * slots + 1


@pytest.mark.parametrize(("lie", "stall"), [("copied", 0.1), ("read", 0.9), ("wait", 0.1)])
def test_each_wait_is_needed(lie: str, stall: float) -> None:
    """The simulated device notices where one of the three waits is left out."""
    assert _changed(LateStreams(7, stall=stall, lie=lie), steps=200, slots=3)[0] > 0


def test_what_was_dropped_is_not_waited_for() -> None:
    """Batches that were begun and given up leave their device memory to those after them."""
    streams = LateStreams(3)
    ring = Ring(_LAYOUT.size(_MOST), spare=9, pinned=False)
    way = Transfer(streams, _LAYOUT, most=_MOST, slots=2)
    for step in range(50):
        memory, content = _filled(ring, step)
        other, _ = _filled(ring, step + 1000)
        batch = way.start(memory, len(content.labels))
        way.drop(way.start(other, _MOST if len(other) == _LAYOUT.size(_MOST) else 1))
        arrived = way.receive(batch)
        streams.finish()
        assert torch.equal(arrived.images, content.images)
        assert torch.equal(arrived.labels, content.labels)
    assert streams.allocated <= 2


def test_a_batch_that_cannot_be_finished() -> None:
    """What fails while a batch is handed out leaves the device memory to the next one."""
    streams = LateStreams(3)
    failing = [True] * 9 + [False]

    def finish(pixels: torch.Tensor) -> torch.Tensor:
        if failing.pop(0):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return streams.clone(pixels)

    ring = Ring(_LAYOUT.size(_MOST), spare=9, pinned=False)
    way = Transfer(streams, _LAYOUT, most=_MOST, slots=2, finish=finish)
    for step in range(9):
        memory, content = _filled(ring, step)
        batch = way.start(memory, len(content.labels))
        with pytest.raises(DeviceError, match="handed out"):
            way.receive(batch)
    memory, content = _filled(ring, 9)
    arrived = way.receive(way.start(memory, len(content.labels)))
    streams.finish()

    assert torch.equal(arrived.images, content.images)
    assert streams.allocated <= 2


def test_a_device_that_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing ends on the device, the wait for it does."""
    monkeypatch.setattr(transfer, "_DEADLINE", 0.05)
    streams = LateStreams(0, stall=1.0)
    ring = Ring(_LAYOUT.size(_MOST), spare=9, pinned=False)
    way = Transfer(streams, _LAYOUT, most=_MOST, slots=1)
    memory, content = _filled(ring, 0)
    way.receive(way.start(memory, len(content.labels)))

    with pytest.raises(StalledError, match="late:0: nothing ended"):
        way.start(memory, len(content.labels))


def _loader(path: Path, **options: object) -> Loader:
    arguments = {"crop": fd.RandomResizedCrop(16, flip=0.5), "threads": 2, **options}
    return fd.Loader(path, 4, **arguments)  # type: ignore[arg-type]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> LateStreams:
    """A late device that loaders take for theirs."""
    streams = LateStreams(1)
    monkeypatch.setattr(pipeline, "_streams_to", lambda _: streams)
    return streams


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("views", [1, 2])
def test_a_loader_over_a_late_device(
    shards: Path, late: LateStreams, prefetch: int, views: int
) -> None:
    """Batches of two epochs, with breaks between, are those that a loader without device gives."""
    options = {"views": views, "drop_last": False}
    with _loader(shards, device="cpu", normalize=None, prefetch=prefetch, **options) as loader:
        for _ in range(5):
            next(iter(loader))
        batches = [batch for _ in range(2) for batch in loader]
    late.finish()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_streams_to", lambda _: None)
        with _loader(shards, **options) as loader:
            expected = [batch for _ in range(2) for batch in loader]

    assert late.allocated <= prefetch + 1
    for batch, other in zip(batches, expected, strict=True):
        assert torch.equal(batch.images, other.images)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch.labels, other.labels)
        assert torch.equal(batch.valid, other.valid)


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("allocate", torch.cuda.OutOfMemoryError, "CUDA out of memory. Tried to allocate 2.00 MiB"),
        ("copy", RuntimeError, "CUDA error: misaligned address"),
    ],
)
def test_a_full_device_is_an_error_and_can_be_emptied(
    shards: Path, late: LateStreams, what: str, kind: type[Exception], text: str
) -> None:
    """An allocation or copy that fails is raised with its bytes; afterwards the loader goes on."""
    with _loader(shards, device="cpu", normalize=None) as loader:
        expected = [batch.ids.tolist() for batch in loader]
        loader.set_epoch(0)
        batches = iter(loader)
        next(batches)
        before = loader.state_dict()
        if what == "allocate":
            loader._pipeline._transfer._free.clear()  # type: ignore[attr-defined]
            loader._pipeline._transfer._missing = 1  # type: ignore[attr-defined]
        late.failing[what] = kind(text)
        size = Layout((16, 16)).size(4)
        with pytest.raises(DeviceError, match=rf"late:0: .* {size} bytes .*{text}; free memory"):
            list(batches)
        late.failing.clear()
        assert loader.state_dict() == before

        loader.load_state_dict(before)

        assert [batch.ids.tolist() for batch in loader] == expected[1:]


def test_a_failing_pin_is_an_error_of_next(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory that cannot be page-locked is an error where the batch is asked for."""
    with _loader(shards) as loader:
        batches = iter(loader)

        def refuse(_: Ring) -> torch.Tensor:
            raise DeviceError("no page-locked memory")

        with monkeypatch.context() as patch:
            patch.setattr(Ring, "_allocate", refuse)
            with pytest.raises(DeviceError, match="page-locked"):
                next(batches)

        assert len(list(loader)) == len(loader)


def test_the_next_epoch_is_under_way_early(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next epoch's first batch is begun before the last of this one is asked for, and used."""
    begun: list[tuple[int, list[int]]] = []
    submit = BatchDecoder.submit

    def spy(filler: BatchDecoder, work: Work, out: Pixels) -> PendingBatch:
        begun.append((work.epoch, work.ids.tolist()))
        return submit(filler, work, out)

    monkeypatch.setattr(BatchDecoder, "submit", spy)
    with _loader(shards) as loader:
        batches = iter(loader)
        found = [next(batches).ids.tolist() for _ in range(len(loader) - 1)]
        epochs = {epoch for epoch, _ in begun}
        found += [batch.ids.tolist() for batch in batches]
        found += [batch.ids.tolist() for batch in loader]

    assert epochs == {0, 1}
    assert [ids for _, ids in begun][: len(found)] == found


@pytest.mark.parametrize("device", ["cuda:99", "toaster", "meta"])
def test_devices_that_cannot_be_had(device: str) -> None:
    """A device that is not here, or that batches cannot go to, is refused with those that are."""
    with pytest.raises(OptionError, match=rf"'{device}'.*here are: cpu"):
        usable_device(device)
