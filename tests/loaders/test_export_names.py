"""Names of exported files: whatever a data set calls its samples, each is one file below DST."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packing import originals, picture, samples

from fastdata.converters.pack import pack
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.manifest import Manifest, Shard, Stored
from fastdata.errors import DestinationError
from fastdata.images.probe import FORMATS
from fastdata.loaders import export as exporting
from fastdata.loaders.export import export
from fastdata.loaders.readers.packed import PackedSource
from fastdata.system.checksum import crc32c

DIGEST = "sha256:" + "0" * 64


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
            builder.append(
                *(text.encode("utf-8", "surrogateescape") for text in (key, name)),
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


CLASHES: list[tuple[str, list[tuple[str, str, int]], tuple[str, ...], dict[str, bytes]]] = [
    ("sample 'b/a' and sample 'a'", [("a", "a.jpg", 0), ("b/a", "a.jpg", -1)], ("b",), {}),
    ("'a' and the folder of 'a.jpg/b'", [("a", "", -1), ("a.jpg/b", "", -1)], (), {}),
    ("a.jpg: sample 'a' and class 'a.jpg'", [("a", "a.jpg", -1)], ("a.jpg",), {}),
    ("a.jpg: sample 'a' and sample 'a' would", [("a", "a.jpg", -1)], (), {"jpg": b"a field"}),
    ("classes 'a/b' and 'a%2Fb' would", [("a", "a.jpg", 0)], ("a/b", "a%2Fb"), {}),
    ("a path of over 3072 bytes", [("d/" * 3000 + "a", "a.jpg", -1)], (), {}),
]


@pytest.mark.parametrize(("what", "names", "classes", "fields"), CLASHES)
def test_a_clash_is_an_error_that_names_both(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    names: Any,
    classes: Any,
    fields: Any,
) -> None:
    """Two samples, classes or folders of one path are refused before a file is written."""
    foreign = Foreign(tmp_path, names, classes, fields)
    with pytest.raises(DestinationError, match=what):
        exported(monkeypatch, foreign, tmp_path / "dst")
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
