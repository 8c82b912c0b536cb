"""HDF5 files that name other files, or state more than they hold, are refused before a read."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from packing import picture

from fastdata.converters.pack import pack
from fastdata.errors import ShardError, SourceError

PIXELS = np.zeros((4, 8, 8, 3), np.uint8)


def _external_bytes(file: h5py.File, other: Path) -> None:
    data = file.create_dataset("images", PIXELS.shape, np.uint8, external=[(str(other), 0, 768)])
    assert data.external


def _virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout(PIXELS.shape, np.uint8)
    layout[:] = h5py.VirtualSource(str(other), "images", PIXELS.shape)
    file.create_virtual_dataset("images", layout)


def _external_link(file: h5py.File, other: Path) -> None:
    file["images"] = h5py.ExternalLink(str(other), "/images")


@pytest.mark.parametrize("make", [_external_bytes, _virtual, _external_link])
def test_what_lies_in_another_file_is_refused(
    tmp_path: Path, make: Callable[[h5py.File, Path], None]
) -> None:
    """No file but the one that is packed is read, even where all of its images are good."""
    other = tmp_path / "secret"
    with h5py.File(other, "w") as file:
        file["images"] = PIXELS + 7
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["good"] = PIXELS
        make(file.create_group("inside"), other)

    with pytest.raises(SourceError, match=r"set.h5: 'inside/images' is a .* file"):
        pack(tmp_path / "set.h5", tmp_path / "out", columns={"image": "good"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("shape", "chunks", "problem"),
    [
        ((10**9, 1, 1, 3), (1000, 1, 1, 3), "states 1000000000 rows"),
        ((10**5, 64, 64, 3), (1, 64, 64, 3), "states 100000 rows of 12288 bytes"),
        ((2, 80_000, 80_000, 3), (1, 100, 100, 3), "rows of 19200000000 bytes"),
        ((64, 4000, 4000, 3), (60, 4000, 4000, 3), "a chunk of 2880000000"),
    ],
)
def test_what_was_never_written_is_refused(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], problem: str
) -> None:
    """Rows, a row and a chunk of any size cost a few bytes to state; none is read."""
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_dataset("images", shape, np.uint8, chunks=chunks)
        if "chunk" in problem:  # in a file of a fitting size
            file["other"] = np.frombuffer(np.random.default_rng(0).bytes(1 << 21), "V1")

    with pytest.raises(SourceError, match=problem):
        pack(tmp_path / "set.h5", tmp_path / "out", columns={"image": "images"})


def test_bytes_that_were_changed_anywhere_are_no_traceback(tmp_path: Path) -> None:
    """What the library makes of damage is a data set, or an error that names the file."""
    good = tmp_path / "good.h5"
    with h5py.File(good, "w") as file:
        images = file.create_dataset("images", 4, h5py.vlen_dtype(np.uint8))
        for number in range(4):
            images[number] = np.frombuffer(picture(number), np.uint8)
        file["labels"] = np.arange(4)
    whole = good.read_bytes()
    dice = np.random.default_rng(1)
    path = tmp_path / "set.h5"
    for place in dice.integers(8, 4096, 60):
        data = bytearray(whole)
        data[place] ^= 1 << int(dice.integers(8))
        path.write_bytes(data)
        try:
            pack(path, tmp_path / "out", kind="hdf5", overwrite=True, workers=1)
        except (ShardError, SourceError) as error:
            assert str(path) in str(error)  # noqa: PT017
