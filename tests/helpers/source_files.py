"""What the tests of sources share: what a pack holds, and files as other tools write them."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from packing import interrupted_after, load, picture
from PIL import Image
from tensorboard.summary.writer.record_writer import RecordWriter

import fastdata as fd
from fastdata.converters import pack_run
from fastdata.converters.pack import PackReport


class Found(NamedTuple):
    """A sample that was packed; the label is the name of its class."""

    key: str
    label: str | None
    image: bytes
    fields: Mapping[str, bytes]


def packed(src: Any, dst: Path, **options: Any) -> tuple[PackReport, list[Found]]:
    """Pack with the bytes of images as they are; the samples by their keys."""
    report = fd.pack(src, dst, **{"keep_bytes": True, **options})
    classes = load(dst).classes
    samples = [
        Found(s.key, classes[s.label] if s.label >= 0 else None, s.image, s.fields)
        for s in fd.open(dst, decode=False)
    ]
    return report, sorted(samples)


def interrupt(
    monkeypatch: pytest.MonkeyPatch, count: int, src: Any, dst: Path, **options: Any
) -> None:
    """Begin a pack that is interrupted after so many samples."""
    with monkeypatch.context() as patch:
        patch.setattr(pack_run, "read_all", interrupted_after(count))
        with pytest.raises(KeyboardInterrupt):
            fd.pack(src, dst, **options)


def expected(count: int, name: str = "{:08}", classes: str = "012") -> list[Found]:
    """Samples of pictures 0 to n - 1, of classes in turn."""
    return sorted(
        Found(name.format(number), classes[number % len(classes)], picture(number), {})
        for number in range(count)
    )


def pixels_of(image: bytes) -> np.ndarray[Any, Any]:
    """Pixels of an image or of an NPY file, by Pillow or numpy."""
    if image.startswith(b"\x93NUMPY"):
        array: np.ndarray[Any, Any] = np.load(io.BytesIO(image))
        return array
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))


def _messages() -> Any:
    """The classes of tf.train.Example, made by protobuf itself of their definition."""
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="t", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, Any, str, bool]) -> Any:
        made = file.message_type.add(name=name)
        for label, number, kind, of, repeated in fields:
            made.field.add(
                name=label,
                number=number,
                type=kind,
                type_name=of or None,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
            )
        return made

    message("BytesList", ("value", 1, field.TYPE_BYTES, "", True))
    message("FloatList", ("value", 1, field.TYPE_FLOAT, "", True))
    message("Int64List", ("value", 1, field.TYPE_INT64, "", True))
    feature = message(
        "Feature",
        ("bytes_list", 1, field.TYPE_MESSAGE, ".t.BytesList", False),
        ("float_list", 2, field.TYPE_MESSAGE, ".t.FloatList", False),
        ("int64_list", 3, field.TYPE_MESSAGE, ".t.Int64List", False),
    )
    feature.oneof_decl.add(name="kind")
    for entry in feature.field:
        entry.oneof_index = 0
    features = message("Features", ("feature", 1, field.TYPE_MESSAGE, ".t.Features.E", True))
    nested = features.nested_type.add(name="E")
    nested.options.map_entry = True
    nested.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    nested.field.add(
        name="value",
        number=2,
        type=field.TYPE_MESSAGE,
        type_name=".t.Feature",
        label=field.LABEL_OPTIONAL,
    )
    message("Example", ("features", 1, field.TYPE_MESSAGE, ".t.Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


_EXAMPLE = _messages()


def example(features: Mapping[str, Any]) -> bytes:
    """A tf.train.Example as protobuf encodes it: texts, integers and floats, or lists of them."""
    made = _EXAMPLE()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        feature = made.features.feature[name]
        if values and isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif values and isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    data: bytes = made.SerializeToString()
    return data


def tfrecord(path: Path, examples: Iterable[Mapping[str, Any]]) -> Path:
    """A TFRecord file as TensorBoard writes it."""
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for features in examples:
            writer.write(example(features))
        writer.flush()
    return path


def mds(
    folder: Path, shards: Sequence[Sequence[Mapping[str, bytes]]], columns: Mapping[str, Any]
) -> Path:
    """MDS shards; ``columns`` has (encoding, size or None) by name, sorted as MDSWriter does."""
    folder.mkdir(parents=True)
    names = sorted(columns)
    listed = []
    for number, samples in enumerate(shards):
        encoded = []
        for sample in samples:
            sizes = [len(sample[name]) for name in names if columns[name][1] is None]
            head = np.array(sizes, "<u4").tobytes()
            encoded.append(head + b"".join(sample[name] for name in names))
        config = b"{}"
        first = 4 * (len(samples) + 2) + len(config)
        offsets = np.cumsum([first, *map(len, encoded)])
        head = np.array([len(samples), *offsets], "<u4").tobytes()
        data = head + config + b"".join(encoded)
        name = f"shard.{number:05}.mds"
        (folder / name).write_bytes(data)
        listed.append(
            {
                "column_encodings": [columns[column][0] for column in names],
                "column_names": names,
                "column_sizes": [columns[column][1] for column in names],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "samples": len(samples),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": None,
            }
        )
    (folder / "index.json").write_text(json.dumps({"shards": listed, "version": 2}))
    return folder
