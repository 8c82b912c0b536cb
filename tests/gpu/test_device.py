"""Batches on a CUDA device: their bytes, their memory, and nothing that waits."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import fastdata as fd
from fastdata.device.augment import RandomErasing
from fastdata.device.normalize import IMAGENET, Normalize
from fastdata.device.slots import Layout, Ring
from fastdata.device.transfer import CudaStreams, InFlight, Transfer
from fastdata.errors import DeviceError, OptionError
from fastdata.loaders.loader import Loader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

_DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
_STALL = 2_000_000  # clock cycles, about a millisecond


@pytest.fixture
def gpu() -> torch.device:
    """The first CUDA device."""
    return torch.device("cuda", 0)


def _loader(path: Path, batch_size: int = 4, **options: object) -> Loader:
    arguments = {"crop": fd.RandomResizedCrop(16, flip=0.5), "threads": 2, **options}
    return fd.Loader(path, batch_size, **arguments)  # type: ignore[arg-type]


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Let every call that makes the host wait for the device fail."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("slots", [1, 3])
def test_a_stalled_consumer_gets_its_bytes(gpu: torch.device, slots: int) -> None:
    """In 1,000 steps before which the consumer's stream sleeps, no byte changes."""
    layout, count = Layout((32, 32)), 16
    ring = Ring(layout.size(count), spare=slots + 1, pinned=True)
    way = Transfer(CudaStreams(gpu), layout, most=count, slots=slots)
    noise = np.random.default_rng(0).integers(0, 256, (64, layout.size(count)), np.uint8)
    changed = torch.zeros((), dtype=torch.int64, device=gpu)
    expected = torch.from_numpy(noise).to(gpu)
    ahead: deque[tuple[int, InFlight]] = deque()
    for step in range(1000):
        memory = torch.from_numpy(ring.lend())
        assert memory.is_pinned()
        memory.copy_(torch.from_numpy(noise[step % 64]))
        ahead.append((step, way.start(memory, count)))
        del memory
        if len(ahead) < slots and way.ready():
            continue
        number, batch = ahead.popleft()
        if step % 3 == 0:
            torch.cuda._sleep(_STALL)
        arrived = way.receive(batch)
        parts = layout.split(expected[number % 64], count)
        changed += (arrived.images.permute(0, 2, 3, 1) != parts.pixels).sum()
        changed += (arrived.labels != parts.labels).sum()
    way.close()

    assert int(changed) == 0
    assert len(ring._lent) + len(ring._free) <= 2 * slots + 2


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_same_batches_as_on_the_cpu(shards: Path, gpu: torch.device, prefetch: int) -> None:
    """Pixels, labels and valid of two epochs are those in host memory, also kept for long."""
    options = {"drop_last": False, "prefetch": prefetch}
    with _loader(shards, **options) as loader:
        expected = [batch for _ in range(2) for batch in loader]
    with _loader(shards, **options, device=gpu, normalize=None) as loader:
        found = []
        for _ in range(2):
            for batch in loader:
                torch.cuda._sleep(_STALL)
                found.append(batch)

    for batch, other in zip(found, expected, strict=True):
        assert batch.images.device == batch.labels.device == batch.valid.device == gpu
        assert batch.images.dtype == torch.uint8
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch.images.cpu(), other.images)
        assert torch.equal(batch.labels.cpu(), other.labels)
        assert torch.equal(batch.valid.cpu(), other.valid)


@_DTYPES
def test_normalised_batches(shards: Path, gpu: torch.device, dtype: torch.dtype) -> None:
    """They are those of the CPU within a rounding of their type."""
    with _loader(shards, device="cpu", dtype=dtype) as loader:
        expected = list(loader)
    with _loader(shards, device=gpu, dtype=dtype) as loader:
        for batch, other in zip(loader, expected, strict=True):
            assert batch.images.dtype == dtype
            assert batch.images.is_contiguous(memory_format=torch.channels_last)
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(batch.images.cpu(), other.images, rtol=eps, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("shape", [(2, 16, 16), (1, 1, 1), (3, 7, 5), (0, 8, 8), (300, 224, 224)])
@_DTYPES
def test_the_kernel(
    gpu: torch.device, shape: tuple[int, int, int], dtype: torch.dtype, compiled: bool
) -> None:
    """The Triton kernel and torch's own operations give torchvision's float pipeline."""
    pixels = torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, device=gpu).permute(0, 3, 1, 2)
    normalize = Normalize(IMAGENET, dtype=dtype, device=gpu)
    assert normalize._kernel is not None
    if not compiled:
        normalize._kernel = None
    steps = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(*map(list, IMAGENET))]
    expected = v2.Compose(steps)(pixels)

    ours = normalize(pixels)

    assert ours.dtype == dtype
    assert ours.is_contiguous(memory_format=torch.channels_last)
    rtol = torch.finfo(dtype).eps
    torch.testing.assert_close(ours.float(), expected, rtol=rtol, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_waits(shards: Path, gpu: torch.device) -> None:
    """Neither a batch, nor its normalisation, nor erasing makes the host wait for the device."""
    with _loader(shards, device=gpu, augment=RandomErasing(p=1.0)) as loader:
        for _ in loader:  # first allocations and compilation may wait
            pass
        with _no_waiting():
            batches = list(loader)

    assert all((batch.images == 0).any() for batch in batches)


def test_labels_kept_hold_no_images(shards: Path, gpu: torch.device) -> None:
    """Labels of many batches take the memory of labels."""
    with _loader(shards, crop=fd.RandomResizedCrop(224), device=gpu) as loader:
        kept = [batch.labels for batch in loader]
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated(gpu)
        kept += [batch.labels for _ in range(4) for batch in loader]
        torch.cuda.synchronize()

        assert torch.cuda.memory_allocated(gpu) - before < 1 << 20


def test_mixup_and_cutmix_on_the_device(shards: Path, gpu: torch.device) -> None:
    """The transforms of torchvision run where the batch is."""
    for kind in (v2.MixUp, v2.CutMix):
        with _loader(shards, device=gpu, augment=kind(num_classes=3)) as loader:
            for batch in loader:
                assert batch.labels.shape == (4, 3)
                assert batch.labels.device == gpu


def test_a_full_device_is_an_error_and_can_be_emptied(shards: Path, gpu: torch.device) -> None:
    """Without room for a batch next() says how many bytes it asked for; with room it goes on."""
    crop = fd.RandomResizedCrop(1024)
    with _loader(shards, crop=crop, device=gpu, dtype=torch.float32) as loader:
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(gpu).total_memory
        room = torch.cuda.memory_reserved(gpu) + (4 << 20)
        torch.cuda.set_per_process_memory_fraction(room / total, gpu)
        try:
            with pytest.raises(DeviceError, match=r"cuda:0: no memory .* \d{8} bytes"):
                next(iter(loader))
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, gpu)

        assert loader.state_dict()["samples"] == 0
        assert len(list(loader)) == len(loader)


def test_a_loader_ends_under_work(shards: Path, gpu: torch.device) -> None:
    """Loaders that end while the device lags behind leave batches whole; new ones start at once."""
    with _loader(shards, 20) as loader:
        (expected,) = loader
    found = []
    for _ in range(20):
        with _loader(shards, 20, device=gpu, normalize=None) as loader:
            torch.cuda._sleep(_STALL)
            found.append(next(iter(loader)).images)

    assert all(torch.equal(images.cpu(), expected.images) for images in found)


def test_the_current_stream_is_the_consumers(shards: Path, gpu: torch.device) -> None:
    """Batches asked for under another stream are good on that one."""
    with _loader(shards) as loader:
        expected = [batch.images for batch in loader]
    stream = torch.cuda.Stream(gpu)
    with _loader(shards, device=gpu, normalize=None) as loader, torch.cuda.stream(stream):
        torch.cuda._sleep(_STALL)
        found = [batch.images.cpu() for batch in loader]

    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_a_device_that_is_not_here(shards: Path) -> None:
    """Its error names those that are."""
    count = torch.cuda.device_count()
    with pytest.raises(OptionError, match=rf"cuda:{count}.*here are: cpu, cuda:0"):
        _loader(shards, device=f"cuda:{count}")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_device_that_is_not_the_current_one(shards: Path) -> None:
    """A loader for the second device works while the first is the current one."""
    with _loader(shards, device="cpu") as loader:
        expected = [batch.images for batch in loader]
    with _loader(shards, device="cuda:1") as loader:
        for batch, images in zip(islice(loader, 5), expected, strict=True):
            assert batch.images.device == torch.device("cuda", 1)
            torch.testing.assert_close(batch.images.cpu(), images, rtol=1e-6, atol=1e-6)
    assert torch.cuda.current_device() == 0
