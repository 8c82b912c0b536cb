"""TFRecord as a source: features, checksums, and bytes as protobuf wrote them."""

import json
from pathlib import Path

import numpy as np
import pytest
from packing import load, picture
from source_files import Found, example, packed, tfrecord
from tensorboard.summary.writer.record_writer import RecordWriter

from fastdata.converters.pack import pack
from fastdata.converters.sources.builder import Wanted
from fastdata.converters.sources.formats.tfrecord import list_tfrecord
from fastdata.errors import ShardError, SourceError


def test_names_and_labels_of_features(tmp_path: Path) -> None:
    """File names become keys, and texts names of classes, sorted."""
    source = tfrecord(
        tmp_path / "a.tfrecord",
        [
            {"image": picture(i), "label": b"cat" if i else b"ant", "filename": b"%d.b.jpg" % i}
            for i in range(2)
        ],
    )

    report, found = packed(source, tmp_path / "out")

    assert found == [Found("0_b", "ant", picture(0), {}), Found("1_b", "cat", picture(1), {})]
    assert load(report.path).classes == ("ant", "cat")


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        (3, "record 0 at byte 0: its length does not match its CRC32C"),
        (10, "its length does not match its CRC32C"),
        (200, "record 0 at byte 12: its data do not match their CRC32C"),
        (-1, "record 1 at byte .*: its data do not match their CRC32C"),
    ],
)
def test_every_bit_of_a_tfrecord_is_checked(tmp_path: Path, place: int, rule: str) -> None:
    """A flipped bit in length, data or checksum is an error that says where."""
    path = tfrecord(tmp_path / "a", [{"image": picture(i), "label": i} for i in range(2)])
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)

    with pytest.raises((ShardError, SourceError), match=rule):
        pack(path, tmp_path / "out", kind="tfrecord")


def test_a_tfrecord_that_ends_early_is_an_error(tmp_path: Path) -> None:
    """A cut file is no shorter data set."""
    path = tfrecord(tmp_path / "a", [{"image": picture(i), "label": i} for i in range(2)])
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(ShardError, match=r"record 1 at byte .*: truncated"):
        pack(path, tmp_path / "out")


def test_records_of_another_schema_are_refused(tmp_path: Path) -> None:
    """A record without the image, or the label, of the first one is named with its features."""
    path = tfrecord(tmp_path / "a", [{"image": picture(0), "label": 1}, {"text": b"x", "label": 1}])

    with pytest.raises(SourceError, match=r"record 1 has no feature 'image', .* but label, text"):
        pack(path, tmp_path / "out")


def test_features_of_all_kinds_become_fields(tmp_path: Path) -> None:
    """Bytes stay as they are; texts, integers of all signs and floats are lists in JSON."""
    features = {
        "image": picture(0), "a": b"\xff", "b": [b"x", b"y"], "c": 0, "f": [1.5, -2.0],
        "neg": [-1, -(2**63), 2**63 - 1], "empty": [],
    }  # fmt: skip
    path = tfrecord(tmp_path / "a", [features])

    _, (found,) = packed(path, tmp_path / "out", fields=tuple(sorted({*features} - {"image"})))

    assert found.image == picture(0)
    fields = dict(found.fields)
    assert fields.pop("a") == b"\xff"
    assert {name: json.loads(value) for name, value in fields.items()} == {
        "b": ["x", "y"], "c": [0], "f": [1.5, -2.0],
        "neg": [-1, -(2**63), 2**63 - 1],
    }  # fmt: skip


def test_what_is_no_example_is_an_error(tmp_path: Path) -> None:
    """Of messages with any byte changed, each is packed or is an error that names its record."""
    data = example({"image": picture(0), "label": [1, -1], "f": [0.5]})
    dice = np.random.default_rng(0)
    errors = 0
    for number in range(300):
        broken = bytearray(data[: int(dice.integers(1, len(data)))])
        broken[int(dice.integers(min(40, len(broken))))] ^= int(dice.integers(1, 256))
        path = tmp_path / f"{number}"
        with path.open("wb") as file:
            writer = RecordWriter(file)
            writer.write(bytes(broken))
            writer.flush()
        try:
            list_tfrecord(str(path), (), [path], Wanted())
        except (ShardError, SourceError) as error:
            assert str(path) in str(error)  # noqa: PT017
            errors += 1

    assert errors > 200
