"""TFRecord as a source: features, checksums, and bytes as protobuf wrote them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing import load, picture
from source_files import Found, example, packed, tfrecord

from fastdata.converters.pack import pack
from fastdata.converters.sources.formats.example import read_example
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


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"a": b"", "b": [b"x", b"y"], "c": 0},
        {"neg": [-1, -(2**63), 2**63 - 1], "f": [1.5, -2.0], "\u00fc": b"\xff"},
        {"long": b"z" * 1000},
    ],
)
def test_examples_are_read_as_protobuf_wrote_them(features: dict[str, Any]) -> None:
    """Texts, integers of all signs and floats are those that protobuf encoded."""
    data = example(features)

    found = {
        name: [data[slice(*value)] if isinstance(value, tuple) else value for value in values]
        for name, values in read_example(data).items()
    }

    assert found == {k: v if isinstance(v, list) else [v] for k, v in features.items()}


def test_damaged_examples_are_errors() -> None:
    """Whatever bytes there are, the answer is features or ValueError, never anything else."""
    data = example({"image": picture(0), "label": [1, -1], "f": [0.5]})
    dice = np.random.default_rng(0)
    for _ in range(2000):
        broken = bytearray(data[: int(dice.integers(1, len(data)))])
        broken[int(dice.integers(len(broken)))] ^= int(dice.integers(1, 256))
        try:
            read_example(bytes(broken))
        except ValueError:
            continue
