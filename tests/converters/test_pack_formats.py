"""What packs hold, read by webdataset, tar(1), lmdb, and by docs/format.md alone."""

import gc
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import lmdb
import numpy as np
import pytest
from packing import KINDS, content, load, originals
from PIL import Image

import fastdata as fd
from fastdata.converters.pack import pack
from fastdata.dataset import manifest
from fastdata.dataset.catalog.part import in_memory
from fastdata.dataset.catalog.reader import Catalog
from fastdata.system.checksum import crc32c


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_the_shards(source: Path, tmp_path: Path) -> None:
    """The webdataset library sees the catalog's keys, in its order, with bytes and labels."""
    wds = pytest.importorskip("webdataset")
    report = pack(source, tmp_path / "out", shard_size=8000, keep_bytes=True)
    urls = sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    assert len(urls) == report.shards > 2

    theirs = list(wds.WebDataset(urls, shardshuffle=False))
    gc.collect()  # it leaves its files open, for which no later test shall be blamed

    catalog = Catalog.from_file(tmp_path / "out/catalog.fdc")
    ids = np.arange(report.samples)
    files = originals(source)
    assert [sample["__key__"] for sample in theirs] == catalog.keys(ids)
    assert [int(sample["cls"]) for sample in theirs] == catalog.rows(ids)["label"].tolist()
    for sample, name in zip(theirs, catalog.names(ids), strict=True):
        extension = "png" if name in ("bee/x.png", "bee/lie.jpg") else "jpg"
        assert sample[extension] == files[name]


def test_tar_extracts_the_source(source: Path, tmp_path: Path) -> None:
    """tar(1) brings back every file under its key."""
    tar = shutil.which("tar")
    if tar is None:
        pytest.skip("no tar(1) here")
    pack(source, tmp_path / "out", keep_bytes=True)
    (tmp_path / "back").mkdir()
    command = [tar, "xf", "../out/shard-000000.tar"]
    subprocess.run(command, cwd=tmp_path / "back", check=True)

    back = originals(tmp_path / "back")
    images = {name: data for name, data in back.items() if not name.endswith(".cls")}

    assert sorted(images.values()) == sorted(originals(source).values())
    assert images["ant/a_b.jpg"] == (source / "ant/a.b.jpg").read_bytes()
    assert images["ant/a_b-2.jpg"] == (source / "ant/a_b.jpg").read_bytes()
    assert images["bee/lie.png"] == (source / "bee/lie.jpg").read_bytes()
    assert back["cat/1.cls"] == b"2"


def test_lmdb_reads_the_file(source: Path, tmp_path: Path) -> None:
    """The lmdb module alone finds the bytes of every sample under its id."""
    report = pack(source, tmp_path / "out.lmdb", keep_bytes=True)
    with (
        lmdb.open(str(tmp_path / "out.lmdb"), subdir=False, readonly=True, lock=False) as env,
        env.begin() as transaction,
    ):
        entries = dict(transaction.cursor())

    header, part = entries[b"fastdata:catalog"], entries[b"fastdata:catalog:00000000"]
    catalog = Catalog.from_parts(header, lambda _: in_memory(part), "it")
    files = originals(source)
    names = catalog.names(np.arange(report.samples))
    assert sorted(names) == sorted(files)
    for number, name in enumerate(names):
        assert entries[number.to_bytes(8, "big")] == files[name]


@KINDS
def test_the_catalog_describes_every_sample(source: Path, tmp_path: Path, name: str) -> None:
    """Checksum, size, format and label are those of the file; counts agree with the folders."""
    pack(source, tmp_path / name, shard_size=5000, keep_bytes=True)
    found = load(tmp_path / name)
    other = pack(source, tmp_path / "plain", shuffle=False, keep_bytes=True)
    catalog = Catalog.from_file(tmp_path / "plain/catalog.fdc")

    rows = catalog.rows(np.arange(other.samples))
    files = originals(source)
    for row, file in zip(rows, catalog.names(np.arange(other.samples)), strict=True):
        with Image.open(io.BytesIO(files[file])) as image:
            assert (row["width"], row["height"]) == image.size
            assert row["flags"] == {"JPEG": 1, "PNG": 2}[str(image.format)]
        assert row["crc"] == crc32c(files[file])
        assert found.classes[row["label"]] == file.partition("/")[0]
    assert found.class_counts == (4, 4, 4)
    assert found.samples == 12
    assert sum(shard.samples for shard in found.shards) == 12


def test_shards_are_what_the_manifest_says(source: Path, tmp_path: Path) -> None:
    """Digest and size of every file fit; places in the catalog lead to the bytes."""
    out = tmp_path / "out"
    report = pack(source, out, shard_size=8000, keep_bytes=True)
    found = manifest.load(out)

    files = content(out)
    for shard in found.shards:
        data = files[shard.name]
        assert (shard.bytes, shard.digest) == (len(data), digest(data))
        assert shard.index == digest(files[shard.name.replace(".tar", ".idx")])
    assert found.catalog.digest == digest(files["catalog.fdc"])
    assert report.bytes == sum(map(len, files.values()))
    rows = Catalog.from_file(out / "catalog.fdc").rows(np.arange(12))
    for row in rows:
        data = files[found.shards[row["shard"]].name]
        assert crc32c(data[row["offset"] :][: row["length"]]) == row["crc"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_raw_pixels_are_read_by_others(source: Path, tmp_path: Path) -> None:
    """What format="raw" packs, webdataset decodes to Pillow's pixels of the files."""
    wds = pytest.importorskip("webdataset")
    pack(source, tmp_path / "out", format="raw", shuffle=False)

    theirs = list(
        wds.WebDataset(str(tmp_path / "out/shard-000000.tar"), shardshuffle=False).decode()
    )
    gc.collect()

    names = Catalog.from_file(tmp_path / "out/catalog.fdc").names(np.arange(12))
    for sample, name in zip(theirs, names, strict=True):
        with Image.open(io.BytesIO(originals(source)[name])) as image:
            assert np.array_equal(sample["npy"], np.asarray(image.convert("RGB")))


@KINDS
def test_raw_pixels_are_loaded(folder: Path, tmp_path: Path, name: str) -> None:
    """Batches from raw pixels are, within the rounding of two resizers, those from JPEGs."""
    pack(folder, tmp_path / name, format="raw", shuffle=False)
    pack(folder, tmp_path / "jpeg", shuffle=False)
    batches = []
    for path in (tmp_path / name, tmp_path / "jpeg"):
        with fd.Loader(path, 23, crop=fd.CenterCrop(32, resize=40), shuffle=False) as loader:
            batches.append(next(iter(loader)).images.clone().int())

    assert (batches[0] - batches[1]).abs().max() <= 2
    assert load(tmp_path / name).options["format"] == "raw"


@KINDS
def test_resized_images_fit_their_catalog(source: Path, tmp_path: Path, name: str) -> None:
    """Size and format in the catalog are those of what is stored, whatever the file was."""
    pack(source, tmp_path / name, resize="longest:16", format="jpeg", quality=80)

    opened = fd.open(tmp_path / name, decode=False)
    samples = list(opened)
    rows = opened.source.rows(np.arange(12))

    for sample, row in zip(samples, rows, strict=True):
        with Image.open(io.BytesIO(sample.image)) as image:
            assert (image.format, image.size) == ("JPEG", (row["width"], row["height"]))
            assert max(image.size) == 16
        assert row["flags"] == 1


def digest(data: bytes) -> str:
    """As manifests spell it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def canonical(value: object) -> bytes:
    """JSON as docs/format.md hashes it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def test_the_document_is_enough_to_read_a_data_set(source: Path, tmp_path: Path) -> None:
    """A reader that knows docs/format.md alone, and none of our code, finds every sample."""
    pack(source, tmp_path / "out", shard_size=8000, keep_bytes=True)
    files = content(tmp_path / "out")

    described = json.loads(files["dataset.json"])
    stated = described.pop("digest")
    assert stated == digest(canonical(described))
    raw = files["catalog.fdc"]
    magic, version, length, _ = struct.unpack_from("<8sIII", raw)
    assert (magic, version, (20 + length) % 8) == (b"\x89FDC\r\n\x1a\n", 1, 0)
    header = json.loads(raw[20 : 20 + length])
    n, (part,) = header["rows"], header["parts"]
    text = 20 + length + 40 * n
    table = text + -(-part["text"] // 8) * 8
    assert len(raw) == table + 8  # one block, its checksum and padding
    labels, begin, seen = b"", 0, {}
    for row in range(n):
        offset, size, _, shard, label, _, _, _, end = struct.unpack_from(
            "<QIIIiIIII", raw, 20 + length + 40 * row
        )
        key, name = raw[text + begin : text + end].split(b"\0")
        begin = end
        labels += struct.pack("<i", label)
        data = files[described["shards"][shard]["name"]]
        seen[os.fsdecode(name)] = data[offset : offset + size]
        assert data[offset - 512 :].startswith((key + b".")[:100])
        assert os.fsdecode(name).startswith(described["classes"][label] + "/")
    assert seen == originals(source)
    content_hash = {
        "classes": described["classes"],
        "fields": described["fields"],
        "labels": hashlib.sha256(labels).hexdigest(),
        "shards": [shard["digest"] for shard in described["shards"]],
    }
    assert described["fingerprint"] == digest(canonical(content_hash))
    paths = sorted(seen, key=lambda path: (*os.path.split(path)[:1], path))
    ends = np.cumsum([len(os.fsencode(path)) for path in paths])
    listed = b"".join(map(os.fsencode, paths)) + struct.pack(f"<{n}Q", *ends.tolist())
    sizes = struct.pack(f"<{n}Q", *(len(seen[path]) for path in paths))
    classes = json.dumps(described["classes"]).encode()
    assert described["source"] == digest(classes + listed + sizes)
