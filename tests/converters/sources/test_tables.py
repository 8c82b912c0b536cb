"""TFRecord, Parquet, Arrow, HDF5, MDS and LMDB as sources, of files that their libraries wrote."""

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packing import content, picture
from source_files import Found, expected, interrupt, mds, packed, pixels_of, tfrecord

from fastdata.converters.pack import pack
from fastdata.converters.sources.formats import tfrecord as tfrecord_module
from fastdata.dataset.manifest import Skipped
from fastdata.errors import MissingExtraError, OptionError, ShardError, SourceError

NUMBERS = range(9)


def as_tfrecord(root: Path) -> Path:
    """Two TFRecord files called as TensorFlow's own scripts call them."""
    root.mkdir()
    for part in range(2):
        tfrecord(
            root / f"train-{part:05}-of-00002",
            (
                {
                    "image/encoded": picture(number),
                    "image/class/label": number % 3,
                    "image/class/text": [b"zero", b"one", b"two"][number % 3],
                    "image/object/bbox/xmin": [0.5, number / 2],
                }
                for number in list(NUMBERS)[5 * part : 5 * part + 5]
            ),
        )
    return root


def as_parquet(root: Path) -> Path:
    """Two Parquet files of plain binary and integer columns, small row groups, compressed."""
    root.mkdir()
    for part in range(2):
        numbers = list(NUMBERS)[5 * part : 5 * part + 5]
        table = pa.table(
            {
                "image": [picture(number) for number in numbers],
                "label": [number % 3 for number in numbers],
                "caption": [f"picture {number}" for number in numbers],
            }
        )
        pq.write_table(table, root / f"part{part}.parquet", row_group_size=2, compression="zstd")
    return root


def as_arrow(root: Path) -> Path:
    """One Arrow file and one Arrow stream."""
    root.mkdir()
    for part, make in enumerate((pa.ipc.new_file, pa.ipc.new_stream)):
        numbers = list(NUMBERS)[5 * part : 5 * part + 5]
        columns = {
            "img": [picture(number) for number in numbers],
            "label": [number % 3 for number in numbers],
        }
        table = pa.table(columns, pa.schema({"img": pa.large_binary(), "label": pa.int8()}))
        with make(str(root / f"{part}.arrow"), table.schema) as writer:
            writer.write_table(table, 2)
    return root


def as_hdf5(root: Path) -> Path:
    """One HDF5 file with encoded images of different lengths."""
    root.mkdir()
    with h5py.File(root / "set.h5", "w") as file:
        images = file.create_dataset("images", 9, h5py.vlen_dtype(np.uint8))
        for number in NUMBERS:
            images[number] = np.frombuffer(picture(number), np.uint8)
        file["labels"] = np.arange(9) % 3
    return root


def as_mds(root: Path) -> Path:
    """Two MDS shards."""
    samples = [
        {"image": picture(number), "label": (number % 3).to_bytes(8, "little")}
        for number in NUMBERS
    ]
    return mds(root, [samples[:5], samples[5:]], {"image": ("jpeg", None), "label": ("int", 8)})


MAKERS = [as_tfrecord, as_parquet, as_arrow, as_hdf5, as_mds]
Maker = Callable[[Path], Path]


@pytest.mark.parametrize("make", MAKERS)
def test_a_table_gives_its_images_and_labels(tmp_path: Path, make: Maker) -> None:
    """Bytes and labels are those that were written; keys are the numbers of the rows."""
    report, found = packed(make(tmp_path / "src"), tmp_path / "out")

    assert report.skipped == ()
    assert found == expected(9)


@pytest.mark.parametrize("make", MAKERS)
def test_a_pack_of_a_table_continues_where_it_was_stopped(
    tmp_path: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted and run again, it ends with the bytes of one that never stopped."""
    source = make(tmp_path / "src")
    whole = pack(source, tmp_path / "whole", shard_size=8000)
    interrupt(monkeypatch, 7, source, tmp_path / "out", shard_size=8000)

    report = pack(source, tmp_path / "out", shard_size=8000, workers=2)

    assert 0 < report.resumed < 9
    assert content(tmp_path / "out") == content(whole.path)
    assert pack(source, tmp_path / "out", shard_size=8000).already_complete


@pytest.mark.parametrize("make", [as_tfrecord, as_parquet, as_hdf5, as_mds])
def test_columns_that_are_missing_are_named(tmp_path: Path, make: Maker) -> None:
    """A wrong name is answered with the names that there are."""
    source = make(tmp_path / "src")

    with pytest.raises(SourceError, match=r"no column 'pixels' among .*label"):
        pack(source, tmp_path / "out", columns={"image": "pixels"})
    with pytest.raises(SourceError, match=r"no column 'mask' among .*label"):
        pack(source, tmp_path / "out", fields=("mask",))
    with pytest.raises(OptionError, match="columns must name the image"):
        pack(source, tmp_path / "out", columns={"mask": "label"})


def test_features_become_fields(tmp_path: Path) -> None:
    """Texts are kept as they are, numbers as JSON; slashes in names become underscores."""
    names = ("image/class/text", "image/object/bbox/xmin")

    _, found = packed(as_tfrecord(tmp_path / "src"), tmp_path / "out", fields=names)

    for number, sample in enumerate(found):
        assert sample.fields["image_class_text"] == [b"zero", b"one", b"two"][number % 3]
        assert json.loads(sample.fields["image_object_bbox_xmin"]) == [0.5, number / 2]


# `MDSWriter` of mosaicml-streaming 0.13.0, whose environment takes 6 GB: a 1 x 1 PNG, an int, a
# str and a JSON value in one shard
MDS_INDEX = (
    '{"shards": [{"column_encodings": ["json", "str", "png", "int"], "column_names": '
    '["boxes", "id", "image", "label"], "column_sizes": [null, null, null, 8], "compr'
    'ession": null, "format": "mds", "hashes": [], "raw_data": {"basename": "shard.00'
    '000.mds", "bytes": 448, "hashes": {}}, "samples": 2, "size_limit": 67108864, "ve'
    'rsion": 2, "zip_data": null}], "version": 2}'
)
MDS_SHARD = (
    "AgAAAPcAAABZAQAAwAEAAHsiY29sdW1uX2VuY29kaW5ncyI6IFsianNvbiIsICJzdHIiLCAicG5nIiwg"
    "ImludCJdLCAiY29sdW1uX25hbWVzIjogWyJib3hlcyIsICJpZCIsICJpbWFnZSIsICJsYWJlbCJdLCAi"
    "Y29sdW1uX3NpemVzIjogW251bGwsIG51bGwsIG51bGwsIDhdLCAiY29tcHJlc3Npb24iOiBudWxsLCAi"
    "Zm9ybWF0IjogIm1kcyIsICJoYXNoZXMiOiBbXSwgInNpemVfbGltaXQiOiA2NzEwODg2NCwgInZlcnNp"
    "b24iOiAyfQYAAAADAAAARQAAAFsxLCAyXW9uZYlQTkcNChoKAAAADUlIRFIAAAABAAAAAQgCAAAAkHdT"
    "3gAAAAxJREFUeJxj4ORgBwAANgAZbrUqKgAAAABJRU5ErkJgggUAAAAAAAAACwAAAAMAAABFAAAAeyJh"
    "IjogbnVsbH10d2+JUE5HDQoaCgAAAA1JSERSAAAAAQAAAAEIAgAAAJB3U94AAAAMSURBVHicY2BkYgYA"
    "AA4AB9dv5HgAAAAASUVORK5CYIIGAAAAAAAAAA=="
)


def test_shards_that_mosaicml_wrote_are_packed(tmp_path: Path) -> None:
    """Bytes that MDSWriter itself wrote are read, fields as text and JSON."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/index.json").write_text(MDS_INDEX)
    (tmp_path / "src/shard.00000.mds").write_bytes(base64.b64decode(MDS_SHARD))

    _, found = packed(tmp_path / "src", tmp_path / "out", fields=("boxes",))

    assert [sample[:2] for sample in found] == [("one", "5"), ("two", "6")]
    assert [json.loads(sample.fields["boxes"]) for sample in found] == [[1, 2], {"a": None}]
    assert [pixels_of(sample.image).tolist() for sample in found] == [[[[9, 8, 7]]], [[[1, 2, 3]]]]


def test_mds_shards_that_are_damaged_or_compressed_are_refused(tmp_path: Path) -> None:
    """A shard of another size, one that is only there compressed, and a name that leads away."""
    source = as_mds(tmp_path / "src")
    shard, index = source / "shard.00001.mds", source / "index.json"
    whole, text = shard.read_bytes(), index.read_text()
    shard.write_bytes(whole[:-1])
    with pytest.raises(ShardError, match=r"00001.mds: .* bytes in place of"):
        pack(source, tmp_path / "out")
    shard.write_bytes(whole[:7] + b"\xff" + whole[8:])
    with pytest.raises(ShardError, match="its offsets are damaged"):
        pack(source, tmp_path / "out")
    shard.write_bytes(whole)
    index.write_text(text.replace(": 4,", ": 1099511627776,"))
    with pytest.raises(ShardError, match=r"00001.mds: .* bytes in place of"):
        pack(source, tmp_path / "out", kind="mds")
    index.write_text(text.replace("[null, 8]", "[null, -8]"))
    with pytest.raises(SourceError, match=r"cannot have sizes \[None, -8\]"):
        pack(source, tmp_path / "out", kind="mds")
    shard.unlink()
    index.write_text(text.replace('"zip_data": null', '"zip_data": {"basename": "x"}'))
    with pytest.raises(SourceError, match=r"00001.mds is there only compressed"):
        pack(source, tmp_path / "out")
    index.write_text("[1]")
    with pytest.raises(SourceError, match="no index of MDS shards"):
        pack(source, tmp_path / "out", kind="mds")
    index.write_text(text.replace("shard.00001.mds", "../a.mds"))
    with pytest.raises(SourceError, match=r"a shard cannot be called '../a.mds'"):
        pack(source, tmp_path / "out")


@pytest.mark.parametrize("label", [b"", b"\1\0\0", b"\1" + bytes(16)])
def test_mds_numbers_of_another_size_are_refused(tmp_path: Path, label: bytes) -> None:
    """A number has the bytes of its encoding, whatever the index calls the size of its column."""
    columns = {"image": ("jpeg", None), "label": ("int", None)}
    source = mds(tmp_path / "mds", [[{"image": picture(0), "label": label}]], columns)
    with pytest.raises(ShardError, match=rf"column 'label': {len(label)} bytes are no int"):
        pack(source, tmp_path / "out")


def test_mds_samples_without_their_sizes_are_refused(tmp_path: Path) -> None:
    """A sample that is shorter than the sizes of its columns is an error that names the shard."""
    source = mds(tmp_path / "mds", [[{"image": b""}]], {"image": ("jpeg", None)})
    shard, index = source / "shard.00000.mds", source / "index.json"
    whole = bytearray(shard.read_bytes()[:-1])
    whole[8:12] = len(whole).to_bytes(4, "little")
    shard.write_bytes(whole)
    index.write_text(index.read_text().replace(f": {len(whole) + 1},", f": {len(whole)},"))
    with pytest.raises(ShardError, match="cut short"):
        pack(source, tmp_path / "out", kind="mds")


@pytest.mark.parametrize("subdir", [True, False])
def test_an_lmdb_of_another_tool_is_packed(tmp_path: Path, subdir: bool) -> None:
    """Keys stay, their folders are classes, entries that are no image are left out and named."""
    path = tmp_path / "src.lmdb"
    with lmdb.open(str(path), subdir=subdir, map_size=1 << 24) as env, env.begin(write=True) as txn:
        for number in NUMBERS:
            txn.put(b"%s/%d" % (b"ab"[number % 2 :][:1], number), picture(number, "PNG"))
        txn.put(b"__len__", b"9")

    report, found = packed(path, tmp_path / "out")

    assert report.skipped == (Skipped("__len__", "no image in this entry"),)
    assert found == sorted(
        Found(f"{'ab'[number % 2]}/{number}", "ab"[number % 2], picture(number, "PNG"), {})
        for number in NUMBERS
    )


def test_a_truncated_lmdb_is_refused(tmp_path: Path) -> None:
    """The library would map it and die: its size is compared with its header first."""
    path = tmp_path / "a.lmdb"
    with lmdb.open(str(path), subdir=False, map_size=1 << 24) as env, env.begin(write=True) as txn:
        for number in range(50):
            txn.put(b"%d" % number, picture(number) * 9)
    path.write_bytes(path.read_bytes()[:40_960])

    with pytest.raises(ShardError, match=r"a.lmdb: truncated: 40960 bytes, its header states"):
        pack(path, tmp_path / "out")
    with pytest.raises(OptionError, match="neither columns nor fields"):
        pack(path, tmp_path / "out", fields=("txt",))


@pytest.mark.parametrize(
    ("make", "package"),
    [(as_parquet, "pyarrow"), (as_hdf5, "h5py"), (as_tfrecord, "protobuf"), (as_mds, None)],
)
def test_a_missing_package_is_named(
    tmp_path: Path, make: Maker, package: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its library a source is one clear sentence, and the others work."""
    source = make(tmp_path / "src")
    for name in ("pyarrow", "h5py", "lmdb", "google.protobuf"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("google.protobuf")
    tfrecord_module._example.cache_clear()

    if package is None:
        assert pack(source, tmp_path / "out").samples == 9
        return
    with pytest.raises(MissingExtraError, match=rf"{package}; pip install 'fastdata\[sources\]'"):
        pack(source, tmp_path / "out")


def test_labels_that_are_wrong_are_refused(tmp_path: Path) -> None:
    """Numbers beyond the classes, floats, and numbers among names are errors."""

    def source(label: list[Any]) -> Path:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"image": [picture(0), picture(1)], "label": label}), path)
        return path

    (tmp_path / "classes.txt").write_text("x\ny\n")
    for labels, rule in (
        ([0, 2], "label 2 must be from 0 to 1"),
        ([0.5, 1.0], "label '0.5' of sample 0 must be an integer"),
        (["x", "z"], "label 'z' is none of the 2 classes"),
    ):
        with pytest.raises(SourceError, match=rule):
            pack(source(labels), tmp_path / "out", classes=tmp_path / "classes.txt")
    with pytest.raises(SourceError, match="label 9999999 must be from 0 to 999999"):
        pack(source([0, 9_999_999]), tmp_path / "out")


def test_what_is_no_source_is_named(tmp_path: Path) -> None:
    """Files of no kind or of two are refused; a single image asks for its folder."""
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b" + bytes(50))
    (tmp_path / "b.jpg").write_bytes(picture(0))
    for name in ("a.gz", "b.jpg"):
        with pytest.raises(SourceError, match="give the folder that holds the images"):
            pack(tmp_path / name, tmp_path / "out")
    with pytest.raises(ShardError, match=r"a.gz: cannot read this file"):
        pack(tmp_path / "a.gz", tmp_path / "out", kind="parquet")
    with pytest.raises(ShardError, match=r"a.gz: record 0 .*compressed by gzip"):
        pack(tmp_path / "a.gz", tmp_path / "out", kind="tfrecord")
    with pytest.raises(SourceError, match=r"b.jpg: must be tfrecord, found image; give"):
        pack(tmp_path / "b.jpg", tmp_path / "out", kind="tfrecord")
    as_parquet(tmp_path / "two")
    tfrecord(tmp_path / "two/x", [{"image": picture(0)}])
    with pytest.raises(SourceError, match=r"x: must be parquet, as .*0.parquet is, found tfrecord"):
        pack(tmp_path / "two", tmp_path / "out")


def test_a_file_of_another_kind_beside_them_is_named(tmp_path: Path) -> None:
    """One whose first bytes are damaged is not passed over in silence; a README is."""
    source = as_tfrecord(tmp_path / "src")
    (source / "README.md").write_text("about")
    damaged = source / "train-00001-of-00002"
    damaged.write_bytes(b"\xff" + damaged.read_bytes()[1:])

    report = pack(source, tmp_path / "out")

    assert report.samples == 5
    assert report.skipped == (Skipped("train-00001-of-00002", "not a file of tfrecord"),)
    with pytest.raises(SourceError, match="would be skipped, which --strict forbids"):
        pack(source, tmp_path / "strict", strict=True)
