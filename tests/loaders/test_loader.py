"""The loader's contract, over each kind of data set."""

import gc
import os
import pickle
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import fastdata as fd
from fastdata.errors import DecodeError, NotADatasetError, OptionError
from fastdata.loaders.loader import Loader
from fastdata.plan.crop import CropPlan

_CROP = fd.RandomResizedCrop(16, flip=0.5)


def _loader(path: Path, batch_size: int = 4, **options: object) -> Loader:
    arguments = {"crop": _CROP, "threads": 2, **options}
    return fd.Loader(path, batch_size, **arguments)  # type: ignore[arg-type]


def _numbers(batch: fd.Batch) -> list[int]:
    """Which images these are, by their names."""
    return [int(key.rpartition("/")[2]) for key in batch.keys]


def _one_pass(loader: Loader) -> list[tuple[list[int], torch.Tensor]]:
    return [(_numbers(batch), batch.images.clone()) for batch in loader]


def test_images_labels_and_keys_belong_together(dataset: Path) -> None:
    """Each row's colour, label, key and id are those of one image, and each image comes once."""
    seen: list[int] = []
    with _loader(dataset, drop_last=False) as loader:
        for batch in loader:
            images, labels = batch
            numbers = _numbers(batch)
            seen += numbers
            gray = torch.tensor([10.0 * number for number in numbers])

            assert images.dtype == torch.uint8
            assert images.shape == (len(numbers), 3, 16, 16)
            assert images.is_contiguous(memory_format=torch.channels_last)
            assert torch.all((images.float().mean((1, 2, 3)) - gray).abs() < 2)
            assert labels.dtype == torch.int64
            assert labels.tolist() == [number % 3 for number in numbers]
            assert batch.ids.dtype == np.int64
            assert loader.source.keys(batch.ids) == batch.keys
            assert batch.valid.dtype == torch.bool
            assert batch.valid.all()

    assert sorted(seen) == list(range(23))


def test_same_batches_from_every_kind_in_dataset_order(
    folder: Path, shards: Path, lmdb_file: Path
) -> None:
    """Unshuffled, shards and LMDB give the same batches; folder and pack hold the same images."""
    passes = []
    for path in (shards, lmdb_file):
        with _loader(path, shuffle=False) as loader:
            passes.append(_one_pass(loader))
    with _loader(folder, shuffle=False) as loader:
        in_folder = [number for numbers, _ in _one_pass(loader) for number in numbers]

    for (numbers, images), (their_numbers, their_images) in zip(*passes, strict=True):
        assert numbers == their_numbers
        assert torch.equal(images, their_images)
    assert in_folder == sorted(in_folder, key=lambda number: (number % 3, number))


@pytest.mark.parametrize(("threads", "prefetch"), [(1, 0), (1, 3), (4, 2)])
def test_threads_and_prefetch_change_nothing(shards: Path, threads: int, prefetch: int) -> None:
    """Order and pixels depend on the data set, the seed and the epoch alone."""
    with _loader(shards, threads=2) as loader:
        expected = _one_pass(loader)
    with _loader(shards, threads=threads, prefetch=prefetch) as loader:
        found = _one_pass(loader)

    for (numbers, images), (their_numbers, their_images) in zip(expected, found, strict=True):
        assert numbers == their_numbers
        assert torch.equal(images, their_images)


def test_batch_size_does_not_change_a_samples_pixels(shards: Path) -> None:
    """A sample's crop and flip are the same in batches of 1 and of 7."""
    pixels: list[dict[int, torch.Tensor]] = []
    for batch_size in (1, 7):
        with _loader(shards, batch_size, drop_last=False) as loader:
            pixels.append(
                {n: image for numbers, images in _one_pass(loader)
                 for n, image in zip(numbers, images, strict=True)}
            )  # fmt: skip

    assert all(torch.equal(pixels[0][number], pixels[1][number]) for number in range(23))


def test_full_passes_advance_the_epoch(dataset: Path) -> None:
    """Each full pass has its own order; set_epoch brings back exactly the order of that epoch."""
    with _loader(dataset) as loader:
        passes = [_one_pass(loader) for _ in range(3)]
        assert loader.epoch == 3
        loader.set_epoch(1)
        again = _one_pass(loader)

    orders = [[number for numbers, _ in batches for number in numbers] for batches in passes]
    assert len({tuple(order) for order in orders}) == 3
    for (numbers, images), (their_numbers, their_images) in zip(passes[1], again, strict=True):
        assert numbers == their_numbers
        assert torch.equal(images, their_images)


def test_seeds_differ(shards: Path) -> None:
    """Another seed is another order."""
    orders = []
    for seed in (0, 1):
        with _loader(shards, seed=seed) as loader:
            orders.append([numbers for numbers, _ in _one_pass(loader)])

    assert orders[0] != orders[1]


def test_break_ends_the_pass(shards: Path) -> None:
    """After a break the next pass starts the same epoch from its first batch."""
    with _loader(shards) as loader:
        first = _numbers(next(iter(loader)))
        for batch in loader:
            broken = _numbers(batch)
            break

        assert broken == first
        assert loader.epoch == 0
        assert _one_pass(loader)[0][0] == first
        assert loader.epoch == 1


def test_a_pass_is_full_once_its_last_batch_was_handed_out(shards: Path) -> None:
    """A loop that takes exactly len(loader) batches by zip or islice moves on to the next epoch."""
    with _loader(shards) as loader:
        for _ in zip(range(len(loader)), loader, strict=False):
            pass

        assert loader.epoch == 1


def test_one_pass_at_a_time(shards: Path) -> None:
    """Starting a second pass ends the first one with an error, and the second is complete."""
    with _loader(shards) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        numbers = [number for batch in second for number in _numbers(batch)]

        with pytest.raises(RuntimeError, match="another was begun"):
            next(first)
    assert len(set(numbers)) == 20


def test_drop_last(shards: Path) -> None:
    """Training batches all have one shape; evaluation sees every sample, in order."""
    with _loader(shards, 5) as training, _loader(shards, 5, shuffle=False) as evaluation:
        assert [len(batch.labels) for batch in training] == [5] * 4
        assert len(training) == 4
        assert [len(batch.labels) for batch in evaluation] == [5, 5, 5, 5, 3]
        assert len(evaluation) == 5


def test_kept_batches_are_never_overwritten(dataset: Path) -> None:
    """list(loader) holds every batch as it was when it was yielded; so do numpy views."""
    with _loader(dataset, prefetch=1) as loader:
        expected = _one_pass(loader)
        loader.set_epoch(0)
        kept = [(batch, batch.images.permute(0, 2, 3, 1).numpy()[1:]) for batch in loader]
        loader.set_epoch(5)
        _one_pass(loader)  # would overwrite the buffers, were they free

    for (_, images), (batch, view) in zip(expected, kept, strict=True):
        assert torch.equal(images, batch.images)
        assert np.array_equal(images.permute(0, 2, 3, 1).numpy()[1:], view)


def test_default_crop(shards: Path) -> None:
    """Without a crop a loader gives the usual evaluation crop."""
    with fd.Loader(shards, 2, threads=1) as loader:
        assert next(iter(loader)).images.shape == (2, 3, 224, 224)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_device_batches_are_normalised(shards: Path, dtype: torch.dtype) -> None:
    """With a device, batches hold the normalised values of the very same pixels."""
    with _loader(shards) as loader:
        raw = [batch.images.clone() for batch in loader]
    with _loader(shards, device="cpu", dtype=dtype) as loader:
        for pixels, batch in zip(raw, loader, strict=True):
            images, labels = batch
            mean, std = (torch.tensor(v)[:, None, None] for v in fd.IMAGENET)
            expected = (pixels.float() / 255 - mean) / std

            assert images.dtype == dtype
            assert images.is_contiguous(memory_format=torch.channels_last)
            assert images.device == labels.device == batch.valid.device
            torch.testing.assert_close(images, expected.to(dtype), rtol=1e-2, atol=1e-5)


def test_no_thread_is_left(shards: Path) -> None:
    """Threads end with close, at the end of a with block, and when a loader is forgotten."""
    before = threading.active_count()
    with _loader(shards) as loader:
        next(iter(loader))
    assert threading.active_count() == before

    forgotten = _loader(shards)
    for _ in forgotten:
        break
    del forgotten
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("fastdata"):
            thread.join(240)
            assert not thread.is_alive()


@pytest.mark.parametrize("device", [None, "cpu"])
def test_what_is_let_go_is_freed(shards: Path, device: str | None) -> None:
    """Neither a pass nor its loader keeps a batch that the consumer has let go."""
    with _loader(shards, device=device) as loader:
        batches = iter(loader)
        for _ in range(3):
            batch = next(batches)
            images = weakref.ref(batch.images)
            del batch
            assert images() is None


def test_a_loader_that_only_its_pass_holds(shards: Path) -> None:
    """A pass is complete although nobody refers to its loader."""
    found = []
    for batch in _loader(shards):
        gc.collect()
        found += _numbers(batch)

    assert len(set(found)) == 20


def test_memory_is_flat(dataset: Path) -> None:
    """Twenty epochs take no more memory than five."""
    with _loader(dataset, crop=fd.RandomResizedCrop(128)) as loader:
        for epoch in range(20):
            for _ in loader:
                pass
            if epoch == 4:
                early = _resident_bytes()

        assert _resident_bytes() - early < 8 << 20


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_closed_loader(shards: Path) -> None:
    """A closed loader says so; batches that it gave stay readable."""
    with _loader(shards) as loader:
        batch = next(iter(loader))
        kept = batch.images.clone()

    assert torch.equal(batch.images, kept)
    with pytest.raises(OptionError, match="closed"):
        iter(loader)


def test_a_damaged_image_is_named(folder: Path, tmp_path: Path) -> None:
    """An image that cannot be decoded is an error with its key, not a hang or a gray square."""
    (tmp_path / "ant").mkdir()
    for number in range(4):
        data = (folder / "ant" / "003.jpg").read_bytes()
        (tmp_path / "ant" / f"{number}.jpg").write_bytes(data if number != 2 else data[:200])

    with _loader(tmp_path, 2) as loader, pytest.raises(DecodeError, match=r"ant/2"):
        list(loader)


def test_a_failing_crop_reaches_the_consumer(folder: Path) -> None:
    """An exception in a decoding thread is raised where the batch is awaited, and ends the pass."""

    class Broken:
        shape = (8, 8)
        flip = 0.0

        def plan(self, *_: object, **__: object) -> CropPlan:
            raise ZeroDivisionError

    with _loader(folder, crop=Broken()) as loader, pytest.raises(ZeroDivisionError):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_is_told(shards: Path) -> None:
    """A loader that is used in a forked child is an error there, not a hang."""
    with _loader(shards) as loader:
        next(iter(loader))
        child = os.fork()
        if child == 0:
            try:
                iter(loader)
            except OptionError as error:
                os._exit(7 if "fork" in str(error) else 1)
            os._exit(0)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"batch_size": 24}, "make no batch of 24"),
        ({"threads": 0}, "threads"),
        ({"prefetch": -1}, "prefetch"),
        ({"dtype": torch.int32}, "dtype"),
        ({"device": "cuda:99"}, "cuda:99"),
        ({"device": "toaster"}, "toaster"),
    ],
)
def test_bad_options(shards: Path, options: dict[str, object], message: str) -> None:
    """Each option out of range is refused by name before anything starts."""
    with pytest.raises(OptionError, match=message):
        _loader(shards, **{"batch_size": 4, **options})  # type: ignore[arg-type]


def test_no_dataset(tmp_path: Path) -> None:
    """A path that is missing, or a folder without images, is no data set."""
    (tmp_path / "empty").mkdir()

    for path in (tmp_path / "missing", tmp_path / "empty"):
        with pytest.raises(NotADatasetError, match=path.name):
            fd.Loader(path, 4)


def test_negative_epoch(shards: Path) -> None:
    """Epochs count from 0."""
    with _loader(shards) as loader, pytest.raises(OptionError, match="epoch"):
        loader.set_epoch(-1)


def test_a_loader_is_not_pickled(shards: Path) -> None:
    """Sending a loader to another process is refused with what to do instead."""
    with _loader(shards) as loader, pytest.raises(TypeError, match="in the process that uses it"):
        pickle.dumps(loader)


def test_two_loaders_at_once(dataset: Path) -> None:
    """Loaders of one data set do not touch each other, whatever their seeds and crops."""
    mirrored = fd.RandomResizedCrop(16, flip=1.0)
    with _loader(dataset, seed=1) as first, _loader(dataset, seed=2, crop=mirrored) as second:
        alone = [_one_pass(first), _one_pass(second)]
        first.set_epoch(0)
        second.set_epoch(0)
        together: list[list[tuple[list[int], torch.Tensor]]] = [[], []]
        for parts in zip(first, second, strict=True):
            for place, batch in enumerate(parts):
                together[place].append((_numbers(batch), batch.images.clone()))

    for one, other in zip(alone, together, strict=True):
        for (numbers, images), (their_numbers, their_images) in zip(one, other, strict=True):
            assert numbers == their_numbers
            assert torch.equal(images, their_images)


@pytest.mark.parametrize("batch_size", [None, 1])
def test_a_dataloader_around_a_loader_is_refused(shards: Path, batch_size: int | None) -> None:
    """A DataLoader, which would take the loader for a data set of samples, is told what to do."""
    with (
        fd.Loader(shards, 4, crop=fd.CenterCrop(8), threads=1) as loader,
        pytest.raises(TypeError, match="iterate over a loader itself"),
    ):
        next(iter(DataLoader(loader, batch_size=batch_size)))  # type: ignore[arg-type]
