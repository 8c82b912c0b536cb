"""At load every image is probed before it is decoded: the bytes decide, and limits hold."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import filling
import jpegs
import numpy as np
import pytest
import torch
import transforms
from catalogs import edit_catalog
from peak import least_peak, peak
from PIL import Image
from typer.testing import CliRunner

import fastdata as fd
from fastdata import native
from fastdata.cli.commands import app
from fastdata.converters.images.coding import transcode
from fastdata.dataset import manifest
from fastdata.errors import DecodeError, OptionError, ShardError
from fastdata.images.probe import FORMATS
from fastdata.plan.crop import CropPlan
from fastdata.system import resources

_CROP = fd.CenterCrop(16, resize=20)
_GOOD = jpegs.scene(40, 30)


def _png(image: jpegs.Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def _scan_bomb() -> bytes:
    data = jpegs.pillow(_GOOD, progressive=True)
    last = jpegs.scan_starts(data)[-1]
    return data[:last] + data[last:-2] * 101 + b"\xff\xd9"


def _claims(width: int, height: int) -> bytes:
    data = jpegs.pillow(_GOOD)
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]


def _cut_and_closed() -> bytes:
    data = jpegs.pillow(jpegs.scene(200, 200))
    return data[: len(data) // 2] + b"\xff\xd9"


def _by_opencv(ending: str) -> bytes:
    image = jpegs.scene(64, 64)
    done, data = cv2.imencode(ending, image.astype(np.float32) if ending == ".hdr" else image)
    assert done
    return data.tobytes()


_REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "a bomb of scans": (_scan_bomb, "scans, over the limit"),
    "a claim of 900 million pixels": (lambda: _claims(30000, 30000), "30000x30000 pixels, over"),
    "cut short and closed": (_cut_and_closed, "premature end"),
    "JPEG 2000": (lambda: _by_opencv(".jp2"), "JPEG 2000 is not loaded as it is"),
    "HDR": (lambda: _by_opencv(".hdr"), "not an image"),
    "PNM": (lambda: _by_opencv(".ppm"), "PNM is not loaded as it is"),
    "an NPY of six bytes": (lambda: b"\x93NUMPY", "truncated NPY"),
}


@pytest.fixture(params=_REFUSED)
def refused(request: pytest.FixtureRequest) -> tuple[bytes, str]:
    """An image that packing refuses, and the words that it does so with."""
    make, words = _REFUSED[request.param]
    return make(), words


def _without_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "load", lambda: None)


def _folder(path: Path, data: bytes) -> Path:
    path.mkdir()
    (path / "bad.jpg").write_bytes(data)
    return path


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("way", ["open", "Loader", "webdataset"])
def test_what_packing_refuses_is_refused_at_load(
    refused: tuple[bytes, str], way: str, tmp_path: Path
) -> None:
    """A folder that was never packed gives an error for it, and neither time, memory nor gray."""
    data, words = refused
    folder = _folder(tmp_path / "images", data)

    def first() -> None:
        if way == "open":
            next(iter(fd.open(folder)))
        elif way == "Loader":
            with fd.Loader(folder, 1, crop=_CROP, threads=1) as loader:
                next(iter(loader))
        else:
            fd.webdataset.decoder(crop=_CROP)({"__key__": "k", "jpg": data})

    with peak() as memory_of, pytest.raises(DecodeError, match=words):
        first()
    assert memory_of.taken < 100 << 20


def test_without_the_core_the_limits_hold_too(
    refused: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenCV is asked for nothing that the header forbids; only cut short and closed passes it."""
    data, words = refused
    if words == "premature end":
        pytest.skip("to see it takes decoding, in which OpenCV only warns")
    _without_core(monkeypatch)
    folder = _folder(tmp_path / "images", data)

    with pytest.raises(DecodeError, match=words):
        next(iter(fd.open(folder)))
    with (
        fd.Loader(folder, 1, crop=_CROP, threads=1) as loader,
        pytest.raises(DecodeError, match=words),
    ):
        next(iter(loader))


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Shards of a JPEG and a PNG of the same size, not shuffled."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jpg").write_bytes(jpegs.pillow(_GOOD, quality=95))
    (source / "b.png").write_bytes(_png(_GOOD))
    fd.pack(source, tmp_path / "set", shuffle=False)
    return tmp_path / "set"


def _batch(path: Path, **options: Any) -> torch.Tensor:
    with fd.Loader(path, 2, crop=_CROP, shuffle=False, threads=2, **options) as loader:
        return next(iter(loader)).images.clone()


def _swap_formats(rows: Any) -> None:
    rows["flags"] = [FORMATS.index("png"), FORMATS.index("jpeg")]


def _call_all_png(rows: Any) -> None:
    rows["flags"] = FORMATS.index("png")


def test_bytes_are_believed_and_not_the_flags(two: Path) -> None:
    """A JPEG that the catalog calls a PNG decodes as ever; a PNG called a JPEG is an error."""
    expected = _batch(two)
    edit_catalog(two, _call_all_png)
    assert torch.equal(_batch(two), expected)

    edit_catalog(two, _swap_formats)
    if native.load() is None:
        assert torch.equal(_batch(two), expected)
    else:
        with pytest.raises(DecodeError, match="sample 'b': not a JPEG"):
            _batch(two)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("size", [(41, 30), (39, 29), (4000, 3000)])
@pytest.mark.parametrize("with_core", [True, False])
def test_another_size_than_the_catalogs_is_an_error(
    two: Path, row: int, size: tuple[int, int], with_core: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the size in the header and the catalog's, whichever is larger."""

    def change(rows: Any) -> None:
        rows["width"][row], rows["height"][row] = size

    edit_catalog(two, change)
    if not with_core:
        _without_core(monkeypatch)

    with pytest.raises(DecodeError, match=f"40x30 pixels, the catalog {size[0]}x{size[1]}"):
        _batch(two)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("length", 2**32 - 1, "4294967295 bytes at"),
        ("offset", 2**64 - 1, "at 18446744073709551615 lie outside"),
        ("offset", 2**63 - 10, "at 9223372036854775798 lie outside"),
        ("shard", 7, "shard 7, there are 1"),
    ],
)
def test_places_outside_of_the_shards_are_errors(
    two: Path, row: int, column: str, value: int, words: str
) -> None:
    """What the catalog says is compared with the shard before memory is taken for it."""

    def change(rows: Any) -> None:
        rows[column][row] = value

    edit_catalog(two, change)

    with peak() as memory_of, pytest.raises(ShardError, match=f"sample '{'ab'[row]}'.*{words}"):
        _batch(two)
    with peak() as memory_of_reading, pytest.raises(ShardError, match=words):
        list(fd.open(two))
    assert max(memory_of.taken, memory_of_reading.taken) < 500 << 20


@pytest.mark.parametrize("with_core", [True, False])
def test_max_pixels_is_the_users(
    two: Path, with_core: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Loaders, readers, the decoder for webdataset and packing take it, JPEG or not."""
    if not with_core:
        _without_core(monkeypatch)
    words = "40x30 pixels, over the limit of 1199"

    assert _batch(two, max_pixels=1200).shape == (2, 3, 16, 16)
    for number in range(2):
        with pytest.raises(DecodeError, match=words):
            _batch(two, max_pixels=1199, sampling=fd.Sampling([number]))
    with pytest.raises(DecodeError, match=words):
        list(fd.open(two, max_pixels=1199))
    for data in (jpegs.pillow(_GOOD), _png(_GOOD)):
        with pytest.raises(DecodeError, match=words):
            fd.webdataset.decoder(crop=_CROP, max_pixels=1199)({"__key__": "k", "jpg": data})
    for wrong in (0, 2**31):
        with pytest.raises(OptionError, match="max_pixels must be from 1"):
            fd.Loader(two, 2, max_pixels=wrong)
        with pytest.raises(OptionError, match="max_pixels must be from 1"):
            fd.pack(tmp_path / "source", tmp_path / "other", max_pixels=wrong)


def test_max_pixels_of_a_pack(tmp_path: Path) -> None:
    """What is larger is left out and named; the manifest states the limit if it is not usual."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jpg").write_bytes(jpegs.pillow(_GOOD))
    (source / "b.png").write_bytes(_png(_GOOD))
    (source / "c.png").write_bytes(_png(_GOOD[:-1]))
    arguments = ["pack", str(source), str(tmp_path / "set"), "--max-pixels", "1199", "--json"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["samples"] == 1
    found = manifest.load(tmp_path / "set")
    assert found.options["max_pixels"] == 1199
    assert found.skipped == {"no usable image": 2}
    fd.pack(source, tmp_path / "usual")
    assert "max_pixels" not in manifest.load(tmp_path / "usual").options


def test_batches_without_memory_are_refused(shards: Path) -> None:
    """Before anything is taken for them, with what they would take and what is free."""
    with pytest.raises(OptionError, match=r"4 batches of 23 samples take .* are free"):
        fd.Loader(shards, 23, crop=fd.CenterCrop(60_000))
    with pytest.raises(OptionError, match="choose a smaller batch_size, crop or prefetch"):
        fd.Loader(shards, 23, crop=fd.CenterCrop(5000), prefetch=1000)
    with pytest.raises(OptionError, match="prefetch must be from 0 to 1024"):
        fd.Loader(shards, 23, prefetch=10**6)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 1),
        ({"views": 2}, 2),
        ({"device": "cpu"}, 5),
        ({"device": "cpu", "normalize": None}, 1),
        ({"transform": transforms.invert, "workers": 1}, 2),
    ],
)
def test_all_that_a_batch_takes_is_counted(
    shards: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], most: int
) -> None:
    """Normalised images in host memory, and what processes share, are part of a batch."""
    pixels = 23 * 100 * 100 * 3
    monkeypatch.setattr(resources, "available_memory", lambda: 4 * most * pixels)
    with pytest.raises(OptionError, match=r"are free"):
        fd.Loader(shards, 23, crop=fd.CenterCrop(100), **options)
    monkeypatch.setattr(resources, "available_memory", lambda: 4 * most * (pixels + 1000))
    fd.Loader(shards, 23, crop=fd.CenterCrop(100), **options).close()


@pytest.mark.parametrize("error", [MemoryError(), cv2.error("out of memory")])
def test_no_memory_for_an_image_is_its_own_error(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It names the key, and the sample is replaced where that is wanted."""

    def imdecode(*_: object) -> None:
        if isinstance(error, cv2.error):
            error.code, error.err = cv2.Error.StsNoMem, "Insufficient memory"
        raise error

    monkeypatch.setattr(cv2, "imdecode", imdecode)

    with pytest.raises(DecodeError, match="sample 'b': there is no memory to decode 40x30"):
        _batch(two)
    if native.load() is not None:
        log = tmp_path / "quarantine.jsonl"
        assert len(_batch(two, on_error=fd.Replace(quarantine=log))) == 2
        assert {json.loads(line)["key"] for line in log.read_text().splitlines()} == {"b"}


def _whole(side: int, count: int) -> CropPlan:
    """Crops of whole images, scaled to 8 x 8."""
    return CropPlan(
        size=np.full((count, 2), side, np.int64),
        source=np.tile(np.array([0, 0, side, side], np.int64), (count, 1)),
        scaled=np.full((count, 2), 8, np.int64),
        cut=np.zeros((count, 2), np.int64),
        flip=np.zeros(count, np.bool_),
    )


def test_native_threads_share_the_memory(native_core: ModuleType, tmp_path: Path) -> None:
    """Images that take much come one after the other where there is no memory for two."""
    side = 2600
    image = Image.new("RGB", (side, side), (9, 99, 199))
    image.save(tmp_path / "large.jpg", progressive=True, subsampling=0)
    one = 6 * side * side  # its coefficients
    source = filling.whole_files(native_core, [tmp_path / "large.jpg"] * 8)
    threads = native_core.WorkerPool(4, filling.LIMITS, 1)
    out = np.empty((8, 8, 8, 3), np.uint8)
    plan = _whole(side, 8)

    def decode() -> None:
        places = np.arange(8)
        job = threads.fill(source, filling.NO_CHECKSUMS, places, plan, out, keep_going=False)
        assert filling.end(job) is None

    assert least_peak(decode) < 2.5 * one
    assert np.abs(out.astype(int) - (9, 99, 199)).max() <= 2


def test_cancelling_ends_a_wait_for_memory(native_core: ModuleType, tmp_path: Path) -> None:
    """A batch that is let go of ends soon, and the pool decodes the next one."""
    side = 2600
    Image.new("RGB", (side, side)).save(tmp_path / "large.jpg", progressive=True, subsampling=0)
    source = filling.whole_files(native_core, [tmp_path / "large.jpg"] * 16)
    threads = native_core.WorkerPool(4, filling.LIMITS, 1)
    plan = _whole(side, 16)
    out = np.empty((16, 8, 8, 3), np.uint8)
    for places in (np.arange(16), np.arange(1)):
        job = threads.fill(source, filling.NO_CHECKSUMS, places, plan, out, keep_going=True)
        if len(places) > 1:
            job.cancel()
            assert job.wait(240)
        else:
            assert filling.end(job) is None


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize("marker", [b"\xff\xe1", b"\xff\xe5"])
def test_segments_of_a_jpeg_cost_a_few_times_their_bytes(marker: bytes) -> None:
    """Packing one takes memory by the image, and not ten times the bytes that lie beside it."""
    good = jpegs.pillow(_GOOD)
    segment = marker + b"\xff\xff" + b"Exif\0\0".ljust(65533, b"\0")
    data = good[:2] + segment * 900 + good[2:]

    with peak() as memory_of:
        coded, *_ = transcode(data, 32)

    assert len(coded) < 1.01 * len(data)
    assert memory_of.taken < 5 * len(data)


def test_coding_waits_for_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Packing asks the budget for each image, with what decoding it may take at most."""
    asked: list[int] = []
    lease = resources.Budget.lease

    def note(self: resources.Budget, size: int, *rest: Any) -> Any:
        asked.append(size)
        return lease(self, size, *rest)

    monkeypatch.setattr(resources.Budget, "lease", note)
    source = tmp_path / "source"
    source.mkdir()
    (source / "b.png").write_bytes(_png(_GOOD))

    fd.pack(source, tmp_path / "set")

    assert asked
    assert min(asked) > 6 * 40 * 30
