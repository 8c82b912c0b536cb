"""Parquet, Arrow and HDF5 as sources: what their libraries and Hugging Face wrote."""

from pathlib import Path

import datasets
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packing import load, picture
from source_files import Found, packed, pixels_of

from fastdata.converters.pack import pack
from fastdata.dataset.manifest import Skipped
from fastdata.errors import ShardError, SourceError


def hugging_face(count: int) -> datasets.Dataset:
    """A data set of the library, with images that it encodes or takes over, and named classes."""
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "caption": datasets.Value("string"),
        }
    )
    rows = {
        "image": [{"bytes": picture(i), "path": f"pictures/{i}.jpg"} for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "caption": [f"caption {i}" for i in range(count)],
    }
    return datasets.Dataset.from_dict(rows, features)


@pytest.mark.parametrize("way", ["parquet", "disk"])
def test_what_hugging_face_writes_is_packed(tmp_path: Path, way: str) -> None:
    """Names of classes come from the schema, keys from the paths beside the bytes."""
    made = hugging_face(7)
    if way == "parquet":
        made.to_parquet(tmp_path / "src.parquet")
    else:
        made.save_to_disk(str(tmp_path / "src"))
    source = tmp_path / ("src.parquet" if way == "parquet" else "src")

    report, found = packed(source, tmp_path / "out", fields=("caption",))

    assert load(report.path).classes == ("cat", "dog")
    assert found == [
        Found(
            f"pictures/{i}" if way == "parquet" else f"{i}",
            ["cat", "dog"][i % 2],
            picture(i),
            {"caption": b"caption %d" % i},
        )
        for i in range(7)
    ]


def test_rows_without_an_image_are_left_out(tmp_path: Path) -> None:
    """A null, and a path that no bytes stand beside, are named; nothing is read by that path."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    images = [{"bytes": picture(0), "path": None}, None, {"bytes": None, "path": "/etc/passwd"}]
    pq.write_table(pa.table({"image": pa.array(images, kind)}), tmp_path / "a.parquet")

    report, found = packed(tmp_path / "a.parquet", tmp_path / "out")

    assert [sample.image for sample in found] == [picture(0)]
    assert report.skipped == (
        Skipped("00000001", "no image"),
        Skipped("etc/passwd", "only a path, no image: /etc/passwd"),
    )


def test_a_parquet_without_images_is_refused(tmp_path: Path) -> None:
    """Numbers alone are no image column, under whatever name."""
    pq.write_table(pa.table({"x": [1, 2], "label": [0, 1]}), tmp_path / "a.parquet")

    with pytest.raises(SourceError, match=r"no image column among label, x; .*--column image=NAME"):
        pack(tmp_path / "a.parquet", tmp_path / "out")
    with pytest.raises(SourceError, match="column 'x' of type int64 holds no images"):
        pack(tmp_path / "a.parquet", tmp_path / "out", columns={"image": "x"})


def test_parquet_files_of_two_schemas_are_refused(tmp_path: Path) -> None:
    """One file with other columns is named beside the first."""
    pq.write_table(pa.table({"image": [picture(0)], "label": [0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": [picture(0)], "label": ["x"]}), tmp_path / "b.parquet")

    with pytest.raises(SourceError, match=r"b.parquet: its columns are .*; pack files of one"):
        pack(tmp_path, tmp_path.parent / "none")


@pytest.mark.parametrize("cut", [20, -20])
def test_a_damaged_parquet_is_an_error(tmp_path: Path, cut: int) -> None:
    """A file that the library cannot read is named."""
    pq.write_table(pa.table({"image": [picture(0)]}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[:cut])

    with pytest.raises(ShardError, match=r"a.parquet: cannot read this file"):
        pack(tmp_path / "a.parquet", tmp_path / "out")


@pytest.mark.parametrize("shape", [(4, 6, 5, 3), (4, 6, 5), (4, 6, 5, 1)])
def test_pixels_of_hdf5_are_kept(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Arrays of colours or grays become the same pixels as NPY, or as PNG where that is asked."""
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train/x"] = pixels
        file["train/y"] = np.arange(4).reshape(4, 1, 1)
    columns = {"image": "train/x", "label": "train/y"}

    for options in ({}, {"format": "png"}):
        _, found = packed(tmp_path / "a.h5", tmp_path / f"{options}", columns=columns, **options)

        for number, sample in enumerate(found):
            assert sample.label == str(number)
            wanted = np.broadcast_to(pixels[number].reshape(6, 5, -1), (6, 5, 3))
            assert np.array_equal(pixels_of(sample.image), wanted)


def test_opaque_values_of_hdf5_are_encoded_images(tmp_path: Path) -> None:
    """Values of fixed length in which zeros fill up the rest are left to the decoder."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["image"] = np.array([np.void(picture(1, "PNG"))])

    _, found = packed(tmp_path / "a.h5", tmp_path / "out")

    assert [sample.image for sample in found] == [picture(1, "PNG")]


def test_hdf5_of_unequal_lengths_is_refused(tmp_path: Path) -> None:
    """Labels of another data set are found by their number."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = np.zeros((4, 2, 2, 3), np.uint8)
        file["labels"] = np.arange(3)

    with pytest.raises(SourceError, match="'images' has 4 entries, 'labels' has 3"):
        pack(tmp_path / "a.h5", tmp_path / "out")
