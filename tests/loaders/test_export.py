"""An export is the image folder that was packed, as far as a folder can be; nothing is lost."""

import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from packing import KINDS, originals, picture
from PIL import Image

from fastdata.converters.check.index import index
from fastdata.converters.pack import pack
from fastdata.dataset.catalog.builder import CatalogBuilder, CatalogRow
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.manifest import Manifest, Shard, Stored
from fastdata.errors import DestinationError
from fastdata.images.probe import FORMATS
from fastdata.loaders import export as exporting
from fastdata.loaders.export import export
from fastdata.loaders.readers.packed import PackedSource, open_source
from fastdata.system.checksum import crc32c

DIGEST = "sha256:" + "0" * 64


def samples(path: Path) -> dict[str, tuple[int, bytes]]:
    """Label and image of every sample by its key."""
    source = open_source(path)
    ids = np.arange(len(source))
    labels = source.labels().tolist()
    return {key: (labels[i], source.read(i)) for i, key in enumerate(source.keys(ids))}


class Foreign(PackedSource):
    """A data set in memory whose names and fields are whatever a test likes."""

    def __init__(
        self,
        path: Path,
        names: list[tuple[str, str, int]],  # key, name, label
        classes: tuple[str, ...] = (),
        fields: Mapping[str, bytes] | None = None,
    ) -> None:
        self.fields = fields or {}
        builder = CatalogBuilder(tuple(self.fields))
        for number, (key, name, label) in enumerate(names):
            image = picture(number)
            row = CatalogRow(
                key.encode("utf-8", "surrogateescape"),
                name.encode("utf-8", "surrogateescape"),
                offset=0,
                length=len(image),
                crc=crc32c(image),
                shard=0,
                label=label,
                width=1,
                height=1,
                flags=FORMATS.index("jpeg"),
                fields={
                    f: (1 + i, len(d), crc32c(d)) for i, (f, d) in enumerate(self.fields.items())
                },
            )
            builder.append(row)
        builder.write(path / "catalog.fdc")
        catalog = Catalog.from_file(path / "catalog.fdc")
        super().__init__(
            path / "set",
            Manifest(
                kind="tar",
                samples=len(names),
                classes=classes,
                class_counts=(0,) * len(classes),
                fields=catalog.field_names,
                options={},
                source=DIGEST,
                skipped={},
                report=None,
                kept={},
                noted={},
                shards=(Shard(0, DIGEST, "shard-000000.tar", len(names), None),),
                catalog=Stored(0, DIGEST),
                fingerprint=DIGEST,
            ),
            catalog,
        )

    def encoded(self, core: ModuleType, ids: Any, rows: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""

    def _bytes(self, sample: int, *place: int) -> bytes:
        offset = place[1]
        return list(self.fields.values())[offset - 1] if offset else picture(sample)


def exported(monkeypatch: pytest.MonkeyPatch, source: Foreign, dst: Path) -> dict[str, bytes]:
    """Files of the export of a data set in memory."""
    monkeypatch.setattr(exporting, "open_source", lambda _: source)
    report = export(source.path, dst)
    files = originals(dst)
    assert report.samples + report.fields == len(files)
    assert report.bytes == sum(map(len, files.values()))
    return files


@KINDS
def test_an_export_is_the_folder_that_was_packed(source: Path, tmp_path: Path, name: str) -> None:
    """Files come back under their names, twins by their keys, and pack the same."""
    (source / "dog").mkdir()
    before = originals(source)
    pack(source, tmp_path / name, keep_bytes=True)

    report = export(tmp_path / name, tmp_path / "out")

    corrected = {"bee/lie.jpg": "bee/lie.png", "cat/2": "cat/2.jpg"}
    twins = {"ant/a_b.jpg": "ant/a_b-2.jpg", "bee/x.png": "bee/x-2.png"}
    names = corrected | twins
    assert originals(tmp_path / "out") == {names.get(n, n): data for n, data in before.items()}
    assert report.renamed == {"extension of the stored format": 2, "key or class": 2}
    assert (report.samples, report.classes, report.fields, report.resumed) == (12, 4, 0, 0)
    assert report.bytes == sum(map(len, before.values()))
    assert sorted(os.listdir(tmp_path / "out")) == ["ant", "bee", "cat", "dog"]
    pack(tmp_path / "out", tmp_path / "again", keep_bytes=True)
    assert samples(tmp_path / "again") == samples(tmp_path / name)


def test_pixels_survive_the_restart_runs(folder: Path, shards: Path, tmp_path: Path) -> None:
    """What was coded in restart runs is exported so: other bytes, the pixels of the original."""
    export(shards, tmp_path / "out")

    for name, data in originals(folder).items():
        with Image.open(io.BytesIO(data)) as first, Image.open(tmp_path / "out" / name) as second:
            assert np.array_equal(np.asarray(first), np.asarray(second))


def test_keys_are_the_same_where_endings_change(tmp_path: Path) -> None:
    """Files whose stems were equal are called by their keys, whatever their new extensions."""
    source = tmp_path / "source"
    source.mkdir()
    kinds = {
        "a.jpg": "WEBP", "a.png": "PNG",  # as a.webp it would come second
        "b.jpg": "PNG", "b.png": "PNG",  # both would be b.png
        "c.jpg": "JPEG", "c.png": "PNG",  # as they are
        "d.b.jpg": "JPEG", "d_b.jpg": "JPEG", "d_b-2.jpg": "PNG",
    }  # fmt: skip
    for number, (name, kind) in enumerate(kinds.items()):
        (source / name).write_bytes(picture(number, kind))
    (source / "e.gif").write_text("no image, but it holds the key e")
    (source / "e.jpg").write_bytes(picture(20))
    pack(source, tmp_path / "packed", keep_bytes=True)

    report = export(tmp_path / "packed", tmp_path / "out")
    pack(tmp_path / "out", tmp_path / "again", keep_bytes=True)

    assert samples(tmp_path / "again") == samples(tmp_path / "packed")
    assert set(os.listdir(tmp_path / "out")) == {
        "a.webp", "a-2.png", "b.png", "b-2.png", "c.jpg", "c-2.png", "d.b.jpg", "d_b-3.jpg",
        "d_b-2.png", "e-2.jpg",
    }  # fmt: skip
    assert report.renamed == {
        "extension of the stored format": 3,  # a.jpg, b.jpg and d_b-2.jpg
        "key or class": 5,  # a.png, b.png, c.png, d_b.jpg and e.jpg
    }


HOSTILE = [
    "../../up.jpg", "/etc/passwd", "a/../../b.jpg", "..", ".", "", "a//b.jpg", "a/./b.jpg",
    ".hidden.jpg", ".git/config.jpg", "x" * 300 + ".jpg", "\u6d77" * 100 + ".jpg",
    "byte\udcff.jpg", "line\nfeed.jpg", "twin.jpg", "twin.jpg",
    "twin.jpg/inside.jpg", "a\\b.jpg", "CON.jpg",
]  # fmt: skip


@pytest.mark.parametrize("classes", [(), ("..", "a/b", "a_b")])
def test_no_name_leads_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: tuple[str, ...]
) -> None:
    """Every sample becomes one file below the folder, however it is called and classed."""
    outer = tmp_path / "outer"
    outer.mkdir()
    label = len(classes) - 1
    names = [(f"{i}/{os.path.splitext(name)[0]}", name, label) for i, name in enumerate(HOSTILE)]
    foreign = Foreign(tmp_path, names, classes)

    files = exported(monkeypatch, foreign, outer / "dst")

    assert sorted(files.values()) == sorted(picture(i) for i in range(len(HOSTILE)))
    assert os.listdir(outer) == ["dst"]
    assert not [name for name in files if any(part[0] == "." for part in name.split("/"))]
    if classes:
        assert sorted(os.listdir(outer / "dst")) == ["%2E.", "a%2Fb", "a_b"]
        assert {name.partition("/")[0] for name in files} == {"a_b"}


def test_an_export_of_hostile_names_keeps_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last part of a key is the same after export and pack, whatever the name was."""
    names = [(f"c/k{i}", name, 0) for i, name in enumerate(HOSTILE)]
    exported(monkeypatch, Foreign(tmp_path, names, ("c",)), tmp_path / "dst")

    pack(tmp_path / "dst", tmp_path / "again", keep_bytes=True)

    found = {key.rpartition("/")[2]: data for key, (_, data) in samples(tmp_path / "again").items()}
    assert found == {f"k{i}": picture(i) for i in range(len(HOSTILE))}


def test_labels_make_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first folder is the label's: a class's name, or the number where classes have none."""
    named = [("x", "x.jpg", 1), ("ant/y", "ant/y.jpg", 1), ("bee/z", "bee/z.jpg", 1)]
    numbered = [("x", "x.jpg", 3), ("y", "03/y.jpg", 3), ("z", "z.jpg", 12), ("n", "n.jpg", -1)]

    one = exported(monkeypatch, Foreign(tmp_path, named, ("ant", "bee")), tmp_path / "one")
    two = exported(monkeypatch, Foreign(tmp_path, numbered), tmp_path / "two")

    assert sorted(one) == ["bee/ant/y.jpg", "bee/bee/z.jpg", "bee/x.jpg"]
    assert sorted(two) == ["03/x.jpg", "03/y.jpg", "12/z.jpg", "n.jpg"]


CLASHES: dict[str, Callable[[Path], Foreign]] = {
    r"b/a.jpg: sample 'b/a' and sample 'a'": lambda path: Foreign(
        path, [("a", "a.jpg", 0), ("b/a", "a.jpg", -1)], ("b",)
    ),
    r"a.jpg: sample 'a' and the folder of 'a.jpg/b'": lambda path: Foreign(
        path, [("a", "a.jpg", -1), ("a.jpg/b", "b.jpg", -1)]
    ),
    r"a.jpg: sample 'a' and class 'a.jpg'": lambda path: Foreign(
        path, [("a", "a.jpg", -1)], ("a.jpg",)
    ),
    r"a.jpg: sample 'a' and sample 'a' would": lambda path: Foreign(
        path, [("a", "a.jpg", -1)], fields={"jpg": b"a field"}
    ),
    r"classes 'a/b' and 'a%2Fb' would": lambda path: Foreign(
        path, [("a", "a.jpg", 0)], ("a/b", "a%2Fb")
    ),
    r"'d/d/.*over 3072 bytes": lambda path: Foreign(path, [("d/" * 3000 + "a", "a.jpg", -1)]),
}


@pytest.mark.parametrize("what", CLASHES)
def test_a_clash_is_an_error_that_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Two samples, classes or folders of one path are refused before a file is written."""
    with pytest.raises(DestinationError, match=what):
        exported(monkeypatch, CLASHES[what](tmp_path), tmp_path / "dst")
    assert not (tmp_path / "dst").exists()


def test_fields_lie_beside_their_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field is a file with the image's stem, whatever the field is called."""
    fields = {"json": b"{}", "../../evil": b"evil", "seg.png": b""}
    foreign = Foreign(tmp_path, [("a", "a.jpg", -1), ("a_seg", "a.seg.jpg", -1)], fields=fields)

    files = exported(monkeypatch, foreign, tmp_path / "dst")

    assert files == {
        "a.jpg": picture(0), "a.json": b"{}", "a...%2F..%2Fevil": b"evil", "a.seg.png": b"",
        "a.seg.jpg": picture(1), "a.seg.json": b"{}", "a.seg...%2F..%2Fevil": b"evil",
        "a.seg.seg.png": b"",
    }  # fmt: skip


def test_tars_of_others_become_folders(tmp_path: Path) -> None:
    """An indexed foreign shard is exported by its labels, with every other member as a field."""
    (tmp_path / "foreign").mkdir()
    with tarfile.open(tmp_path / "foreign/train.tar", "w") as archive:
        for number in range(12):
            members = {"jpeg": picture(number), "cls": b"%d" % (number % 11), "json": b"{}"}
            if number == 4:
                members["seg.png"] = picture(4, "PNG")
            for ending, data in members.items():
                info = tarfile.TarInfo(f"./train/{number:03}.{ending}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    index(tmp_path / "foreign")

    report = export(tmp_path / "foreign", tmp_path / "dst")

    assert (report.samples, report.fields) == (12, 13)
    files = originals(tmp_path / "dst")
    assert {os.path.basename(name) for name in files} == {
        *(f"{number:03}.{ending}" for number in range(12) for ending in ("jpeg", "json")),
        "004.seg.png",
    }
    for name, data in files.items():
        stem, _, ending = os.path.basename(name).partition(".")
        kinds = {"jpeg": picture(int(stem)), "json": b"{}", "seg.png": picture(int(stem), "PNG")}
        assert data == kinds[ending]
        assert name.startswith(f"{int(stem) % 11:02}/")
