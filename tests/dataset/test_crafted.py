"""What a download may hold in place of our JSON is an error or a data set, never a traceback."""

import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crafted import TEXTS, mutations, spelled
from packing import picture
from source_files import interrupt, mds

import fastdata as fd
from fastdata.converters.check.index import index
from fastdata.converters.check.repair import repair
from fastdata.converters.check.verify import verify
from fastdata.converters.journal import Journal
from fastdata.converters.pack import pack
from fastdata.dataset.catalog.reader import decode_header, header_bytes
from fastdata.dataset.manifest import parse
from fastdata.errors import CatalogError, FastdataError, ManifestError, SourceError
from fastdata.loaders.describe import describe
from fastdata.system.checksum import crc32c

FEW = 40  # crafted files that a whole command is tried on; more are parsed alone


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three images in two shards, one file left out, and their source."""
    root = tmp_path_factory.mktemp("crafted")
    for number in range(3):
        path = root / "source" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    (root / "source/a/no.jpg").touch()
    pack(root / "source", root / "set", shard_size=4000, keep_bytes=True)
    return root


def few(cases: list[Any]) -> list[Any]:
    """Some of them, the same every time."""
    return random.Random(0).sample(cases, min(FEW, len(cases)))  # noqa: S311


def manifests(data: bytes) -> list[bytes]:
    """Every kind of manifest that is not the good one."""
    fitting = [spelled(content) for content in mutations(json.loads(data))]
    cut = [data[:length] for length in range(len(data))]
    return [text for text in [*TEXTS, *fitting, *cut] if text != data]


def test_every_crafted_manifest_is_an_error_of_manifests_or_read(small: Path) -> None:
    """Fields that are missing, of other types or out of range, with digests that fit."""
    for text in manifests((small / "set/dataset.json").read_bytes()):
        with suppress(ManifestError):
            parse(text, "it")


def _load(path: Path) -> None:
    with fd.Loader(path, 2, crop=fd.CenterCrop(8)) as loader:
        assert len(list(loader)) > 0


@pytest.mark.parametrize("command", [describe, verify, _load, repair])
def test_no_command_ends_in_a_traceback_over_a_manifest(
    small: Path, tmp_path: Path, command: Callable[..., object]
) -> None:
    """info, verify, verify --repair and the Loader give results or errors of ours."""
    texts = few(manifests((small / "set/dataset.json").read_bytes()))
    for number, text in enumerate([b"", b"{}", b"\0" * 100, *texts]):
        copy = tmp_path / f"set{number}"
        shutil.copytree(small / "set", copy)
        (copy / "dataset.json").write_bytes(text)
        with suppress(FastdataError):
            command(copy)


def test_an_empty_manifest_is_replaced_by_index(small: Path, tmp_path: Path) -> None:
    """The likeliest damage after a power cut costs what the manifest alone knew, and no sample."""
    copy = tmp_path / "set"
    shutil.copytree(small / "set", copy)
    (copy / "dataset.json").write_bytes(b"")

    index(copy)
    assert verify(copy).problems == ()
    assert describe(copy)["samples"] == 3


def _catalogs(data: bytes) -> list[bytes]:
    size = header_bytes(data[:20], "it")
    content = json.loads(data[20:size])
    texts = [json.dumps(changed).encode() for changed in mutations(content)]
    heads = [(data[:12] + struct.pack("<I", len(text)), text) for text in [*texts, *TEXTS]]
    return [head + struct.pack("<I", crc32c(head + text)) + text for head, text in heads]


def test_every_crafted_header_of_a_catalog_is_an_error_of_catalogs_or_read(small: Path) -> None:
    """Its checksum fits, its content does not."""
    for header in _catalogs((small / "set/catalog.fdc").read_bytes()):
        with suppress(CatalogError):
            decode_header(header, "it")


@pytest.mark.parametrize("command", [describe, verify, _load, repair])
def test_no_command_ends_in_a_traceback_over_a_catalog(
    small: Path, tmp_path: Path, command: Callable[..., object]
) -> None:
    """The manifest states the crafted catalog's own digest, or is lost."""
    whole = (small / "set/catalog.fdc").read_bytes()
    rows = whole[header_bytes(whole[:20], "it") :]
    stated = json.loads((small / "set/dataset.json").read_bytes())
    for number, header in enumerate(few(_catalogs(whole))):
        copy = tmp_path / f"set{number}"
        shutil.copytree(small / "set", copy)
        data = header + rows
        (copy / "catalog.fdc").write_bytes(data)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        manifest = spelled({**stated, "catalog": {"bytes": len(data), "digest": digest}})
        (copy / "dataset.json").write_bytes(manifest if number % 3 else b"")
        with suppress(FastdataError):
            command(copy)


def _record(text: bytes, note: bytes) -> bytes:
    """A record of a journal, as docs and code describe it."""
    sizes = struct.pack("<IQ", len(text), len(note))
    crc = crc32c(sizes + text + note)
    return struct.pack("<8sIIQ", b"FDJRNL1\n", len(text), crc, len(note)) + text + note


@pytest.mark.parametrize("name", ["out", "out.lmdb"])
def test_no_pack_ends_in_a_traceback_over_a_journal(
    small: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unfinished pack whose journal was edited is resumed, or refused by an error of ours."""
    source = small / "source"
    options: dict[str, Any] = {"shard_size": 4000, "keep_bytes": True}
    interrupt(monkeypatch, 2, source, tmp_path / "first" / name, **options)
    (journal,) = (tmp_path / "first").rglob("*.journal")
    mark, ((shard, note),) = Journal(journal).mark() or "", Journal(journal).read()
    text = json.dumps(vars(shard), sort_keys=True).encode()
    (size,) = struct.unpack_from("<I", note)
    content, rows = json.loads(note[4 : 4 + size]), note[4 + size :]
    said = [json.dumps(changed).encode() for changed in mutations(vars(shard))]
    noted = [json.dumps(changed).encode() for changed in mutations(content)]
    cases = [(changed, note) for changed in [*TEXTS, *said]]
    cases += [(text, struct.pack("<I", len(n)) + n + rows) for n in [*TEXTS, *noted]]
    cases += [(text, note[:length]) for length in range(0, len(note), 5)]
    for number, (changed, further) in enumerate(few(cases)[:20]):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "first", copy)
        records = _record(mark.encode(), b"") + _record(changed, further)
        (copy / journal.relative_to(tmp_path / "first")).write_bytes(records)
        with suppress(FastdataError):
            pack(source, copy / name, **options)
        pack(source, copy / name, overwrite=True, **options)
        assert verify(copy / name).problems == ()


def test_every_crafted_index_of_mds_is_an_error_or_read(tmp_path: Path) -> None:
    """The error names the index, or a shard."""
    samples = [
        {"image": picture(number), "label": bytes([number] + [0] * 7)} for number in range(2)
    ]
    source = mds(tmp_path / "mds", [samples], {"image": ("jpeg", None), "label": ("int", 8)})
    index = source / "index.json"
    cases = list(mutations(json.loads(index.read_bytes())))
    for text in [*TEXTS, *(json.dumps(content).encode() for content in few(cases) + cases[:20])]:
        index.write_bytes(text)
        with suppress(FastdataError):
            pack(source, tmp_path / "out", kind="mds", overwrite=True, workers=1)


def test_crafted_features_of_hugging_face_are_an_error_that_names_the_file(
    tmp_path: Path,
) -> None:
    """Metadata of a schema that are no JSON are refused; other features give no names."""
    table = pa.table({"image": [picture(0), picture(1)], "label": [0, 1]})
    features = {"info": {"features": {"label": {"names": ["a", "b"], "_type": "ClassLabel"}}}}
    path = tmp_path / "a.parquet"
    for text in [*TEXTS, *(json.dumps(content).encode() for content in mutations(features))][::12]:
        pq.write_table(table.replace_schema_metadata({b"huggingface": text}), path)
        try:
            pack(path, tmp_path / "out", overwrite=True, workers=1)
        except SourceError as error:
            assert str(path) in str(error)  # noqa: PT017
