"""The native core's batches: sources of bytes, checksums, failures, cancelling, loading."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import filling
import jpegs
import numpy as np
import pytest
from filling import CHECKSUM, DECODE, READ, SENTINEL, Crops, begin, compare_bytes, crc, end, fill
from jpegs import scene


def _write(folder: Path, contents: Sequence[bytes]) -> list[Path]:
    paths = [folder / f"{number:04}" for number in range(len(contents))]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    return paths


def _whole(count: int, width: int, height: int) -> Crops:
    return Crops([(0, 0, width, height)] * count, [(width, height)] * count)


def test_checksums_are_googles(native_core: ModuleType, tmp_path: Path) -> None:
    """Bytes of every short length, and of long ones, have the checksum that google-crc32c gives."""
    data = np.random.default_rng(0).bytes(200_000)
    sizes = [*range(70), 255, 256, 257, 1023, 3072, 4099, 24_577, 99_999] * 17
    offsets = np.arange(len(sizes), dtype=np.uint64)
    source = native_core.FileRanges(
        native_core.FileSet([os.fsencode(path) for path in _write(tmp_path, [data])], 1),
        np.zeros(len(sizes), np.uint32),
        offsets,
        np.array(sizes, np.uint32),
    )
    parts = [data[at : at + size] for at, size in zip(offsets.tolist(), sizes, strict=True)]
    assert compare_bytes(filling.pool(native_core), source, parts) is None


def test_lowest_bad_row_is_reported(native_core: ModuleType, tmp_path: Path) -> None:
    """Whatever fails behind it and whichever thread is first, the lowest bad row is reported."""
    data = jpegs.pillow(scene(20, 10))
    paths = _write(tmp_path, [data] * 30)
    paths[12], paths[20] = tmp_path / "missing", tmp_path
    source = filling.whole_files(native_core, paths)
    crcs = np.full(30, crc(data), np.uint32)
    crcs[[7, 9, 29]] ^= 1
    threads = filling.pool(native_core, 4)
    for _ in range(100):
        _, failure = fill(threads, source, _whole(30, 20, 10), (10, 20), crcs)
        assert failure is not None
        assert failure[:2] == (7, CHECKSUM)
        assert b"checksum" in failure.message


def test_missing_file_is_named(native_core: ModuleType, tmp_path: Path) -> None:
    """A file that cannot be read is a failure of its row, with its path, in any encoding."""
    data = jpegs.pillow(scene(20, 10))
    (good,) = _write(tmp_path, [data])
    for bad in (os.fsencode(tmp_path) + b"/\xff\xfe", os.fsencode(tmp_path)):
        source = native_core.WholeFiles([os.fsencode(good), bad])
        _, failure = fill(filling.pool(native_core), source, _whole(2, 20, 10), (10, 20))
        assert failure is not None
        assert failure[:2] == (1, READ)
        assert bad in failure.message


def test_rows_of_a_batch_are_chosen_by_place(native_core: ModuleType, tmp_path: Path) -> None:
    """Only the places that are asked for are read and written; a failure counts among them."""
    pictures = [jpegs.pillow(np.full((4, 4, 3), 50 * n, np.uint8)) for n in range(4)]
    source = filling.whole_files(native_core, _write(tmp_path, [*pictures[:3], b"no JPEG"]))
    out = np.full((4, 4, 4, 3), SENTINEL, np.uint8)
    crops = _whole(4, 4, 4)
    threads = filling.pool(native_core)
    for places, failed in (([2, 0], None), ([2, 3], 1)):
        job = threads.fill(
            source,
            filling.NO_CHECKSUMS,
            np.array(places, np.int64),
            crops.plan(),
            out,
            keep_going=False,
        )
        failure = end(job)
        assert (None if failure is None else failure[:2]) == (failed and (failed, DECODE))
    assert [int(image[0, 0, 0]) for image in out] == [0, SENTINEL, 100, SENTINEL]


def test_cancel_starts_no_further_row(native_core: ModuleType, tmp_path: Path) -> None:
    """After cancel() the job ends soon, and the rows that were not begun stay as they were."""
    paths = _write(tmp_path, [jpegs.pillow(scene(400, 300))]) * 5000
    source = filling.whole_files(native_core, paths)
    out = np.full((5000, 1, 1, 3), SENTINEL, np.uint8)
    crops = Crops([(0, 0, 400, 300)] * 5000, [(1, 1)] * 5000)
    threads = filling.pool(native_core, 2)
    job = begin(threads, source, crops, out, filling.NO_CHECKSUMS)

    assert not job.wait(0.0)
    job.cancel()

    assert job.wait(240) is True
    assert job.failures() == []
    assert (out[-1] == SENTINEL).all()


def test_dropping_the_threads_ends_their_jobs(native_core: ModuleType, tmp_path: Path) -> None:
    """Jobs of threads that nobody holds any more are cancelled, those not begun as well."""
    source = filling.whole_files(native_core, _write(tmp_path, [jpegs.pillow(scene(400, 300))]))
    out = np.zeros((1, 300, 400, 3), np.uint8)
    threads = filling.pool(native_core, 2)
    crops = _whole(1, 400, 300)
    jobs = [begin(threads, source, crops, out, filling.NO_CHECKSUMS) for _ in range(300)]

    del threads

    assert all(job.wait(240) for job in jobs)


@pytest.mark.parametrize("most_open", [0, 1, 3, 100])
def test_shards_may_outnumber_open_files(
    native_core: ModuleType, tmp_path: Path, most_open: int
) -> None:
    """Ranges of any number of files have the right bytes, whatever number may stay open."""
    rng = np.random.default_rng(0)
    contents = [rng.integers(0, 256, 5000, np.uint8).tobytes() for _ in range(10)]
    paths = [os.fsencode(path) for path in _write(tmp_path, contents)]
    numbers, offsets = rng.integers(0, 10, 500), rng.integers(0, 5000, 500)
    sizes = rng.integers(0, 5001 - offsets)
    open_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    source = native_core.FileRanges(
        native_core.FileSet(paths, most_open),
        numbers.astype(np.uint32),
        offsets.astype(np.uint64),
        sizes.astype(np.uint32),
    )
    where = zip(numbers, offsets, sizes, strict=True)
    expected = [contents[n][o : o + s] for n, o, s in where]

    assert compare_bytes(filling.pool(native_core, 4), source, expected) is None
    if open_before:
        assert len(os.listdir("/proc/self/fd")) - open_before == min(most_open, 10)


@pytest.mark.parametrize(
    ("number", "offset", "message"),
    [
        (0, 8, b"5 bytes at 8 lie outside its 10"),
        (0, 2**63, b"0000"),
        (0, 2**64 - 1, b"9551615 lie outside"),
        (9, 0, b"shard 9, there are 1"),
    ],
)
def test_ranges_outside_are_failures(
    native_core: ModuleType, tmp_path: Path, number: int, offset: int, message: bytes
) -> None:
    """A range behind the end of a shard, or of a shard that there is not, cannot be read."""
    files = native_core.FileSet([os.fsencode(path) for path in _write(tmp_path, [b"x" * 10])], 2)
    arrays = np.array([number], np.uint32), np.array([offset], np.uint64), np.array([5], np.uint32)
    failure = compare_bytes(
        filling.pool(native_core), native_core.FileRanges(files, *arrays), [b"xxxxx"]
    )
    assert failure is not None
    assert failure.kind == READ
    assert re.search(message, failure.message)


def test_flip_mirrors(native_core: ModuleType, tmp_path: Path) -> None:
    """A flipped output is the mirrored output, to the byte, scaled or not."""
    source = filling.whole_files(native_core, _write(tmp_path, [jpegs.pillow(scene(90, 70))]))
    threads = filling.pool(native_core)
    for scaled, cut in (((60, 50), (0, 0)), ((33, 80), (4, -3)), ((33, 80), (-9, 40))):
        crops = Crops([(7, 9, 60, 50)], [scaled], cut)
        plain, failure = fill(threads, source, crops, (50, 60))
        flipped, _ = fill(threads, source, crops._replace(flip=True), (50, 60))
        assert failure is None
        assert np.array_equal(flipped, plain[:, :, ::-1])


def test_outside_of_the_image_is_zero(native_core: ModuleType, tmp_path: Path) -> None:
    """Where the output window lies outside of the scaled region, there are zeros."""
    data = jpegs.pillow(scene(20, 10))
    source = filling.whole_files(native_core, _write(tmp_path, [data]))
    crops = _whole(1, 20, 10)._replace(cut=(-3, -5))
    out, failure = fill(filling.pool(native_core), source, crops, (18, 30))
    assert failure is None
    assert np.array_equal(out[0], np.pad(jpegs.decoded(data), ((5, 3), (3, 7), (0, 0))))


def test_loaded_samples_are_filled_from(native_core: ModuleType, tmp_path: Path) -> None:
    """load() tells the sizes of JPEGs, zeros for other files, and its samples need no file."""
    pictures = [jpegs.pillow(scene(20 + n, 10 + n)) for n in range(20)]
    paths = _write(tmp_path, [*pictures, b"\x89PNG\r\n\x1a\n", b""])
    threads = filling.pool(native_core, 2)
    job = threads.load(filling.whole_files(native_core, paths), keep_going=False)
    assert end(job) is None
    assert job.sizes() == [*((20 + n, 10 + n) for n in range(20)), (0, 0), (0, 0)]
    for path in paths:
        path.unlink()

    assert compare_bytes(threads, job.samples(), [*pictures, b"\x89PNG\r\n\x1a\n", b""]) is None
    out, failure = fill(threads, job.samples(), _whole(20, 20, 10), (10, 20))
    assert failure is None
    assert np.array_equal(out[7], jpegs.decoded(pictures[7])[:10, :20])


def test_loading_reports_failures(native_core: ModuleType, tmp_path: Path) -> None:
    """A missing file, and a JPEG whose header is damaged, are failures of their rows."""
    paths = _write(tmp_path, [jpegs.pillow(scene(20, 10)), b"\xff\xd8\xff\xe0"])
    threads = filling.pool(native_core)
    for batch, kind in ((paths, DECODE), ([paths[0], tmp_path / "none"], READ)):
        job = threads.load(filling.whole_files(native_core, batch), keep_going=False)
        failure = end(job)
        assert failure is not None
        assert failure[:2] == (1, kind)
