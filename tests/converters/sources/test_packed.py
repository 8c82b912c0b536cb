"""A packed data set as a source: what a loader would not open is not packed either."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from packing import picture

from fastdata.converters.pack import pack
from fastdata.dataset.catalog.reader import Catalog
from fastdata.dataset.lmdb.format import MARK
from fastdata.errors import CatalogError, CorruptError, FastdataError, ManifestError, ShardError
from fastdata.loaders.readers.packed import open_source

CLASSES = ("ant", "bee")


def images(root: Path, number: int = 6) -> Path:
    """Images in two classes."""
    for i in range(number):
        path = root / CLASSES[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(i))
    return root


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Six images in shards."""
    pack(images(tmp_path / "images"), tmp_path / "packed", shuffle=False)
    return tmp_path / "packed"


def mixed(packed: Path, other: Path, *names: str) -> Path:
    """A packed folder with some files of another one."""
    for name in names:
        shutil.copy(other / name, packed / name)
    return packed


@pytest.mark.parametrize(
    "names", [("dataset.json",), ("catalog.fdc",), ("shard-000000.tar",), ("dataset.json", "x")]
)
def test_files_of_different_packs_are_refused(
    packed: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """With one more sample, sizes tell: pack says what the loader says."""
    pack(images(tmp_path / "more", 7), tmp_path / "other", shuffle=False)
    (tmp_path / "other/x").write_bytes(b"")
    mixed(packed, tmp_path / "other", *names)

    with pytest.raises(CorruptError) as by_loader:
        open_source(packed)
    with pytest.raises(type(by_loader.value)) as by_pack:
        pack(packed, tmp_path / "out")

    assert str(by_pack.value).startswith(str(by_loader.value))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["dataset.json", "catalog.fdc"])
def test_labels_of_another_pack_are_refused(packed: Path, tmp_path: Path, name: str) -> None:
    """Two packs of the same images in another order, all sizes the same, are told apart."""
    size = (packed / "catalog.fdc").stat().st_size
    for seed in range(100):
        other = tmp_path / f"{seed}"
        pack(tmp_path / "images", other, seed=seed)
        if (other / "catalog.fdc").stat().st_size == size:
            break
    mixed(packed, other, name)
    assert len(open_source(packed)) == 6  # which does not read the whole catalog

    with pytest.raises(CatalogError, match="different packs"):
        pack(packed, tmp_path / "out")


MANIFESTS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: path.write_bytes(bytes(range(256))),
    "an empty object": lambda path: path.write_bytes(b"{}"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "edited": lambda path: path.write_bytes(path.read_bytes().replace(b"ant", b"elk")),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("what", MANIFESTS)
def test_a_damaged_manifest_does_not_make_webdataset_of_shards(
    packed: Path, tmp_path: Path, what: str
) -> None:
    """The error says what to do; tars are taken without their manifest only where that is said."""
    MANIFESTS[what](packed / "dataset.json")

    with pytest.raises(ManifestError, match=r"`fastdata index .*--from webdataset"):
        pack(packed, tmp_path / "out")

    assert pack(packed, tmp_path / "out", kind="webdataset").samples == 6


@pytest.mark.parametrize("text", [b"", b"\0" * 100, b"[", b"fastdata"])
def test_a_damaged_manifest_alone_is_reason_enough(
    packed: Path, tmp_path: Path, text: bytes
) -> None:
    """Beside tars, although the catalog is gone."""
    (packed / "catalog.fdc").unlink()
    (packed / "dataset.json").write_bytes(text)

    with pytest.raises(FastdataError, match="--from webdataset"):
        pack(packed, tmp_path / "out")


def test_the_manifest_of_another_program_is_none(packed: Path, tmp_path: Path) -> None:
    """Tars of WebDataset with a dataset.json of somebody else are packed as such, and without."""
    (packed / "catalog.fdc").unlink()
    (packed / "dataset.json").write_text(json.dumps({"name": "pets"}))
    assert pack(packed, tmp_path / "out").samples == 6

    (packed / "dataset.json").unlink()
    assert pack(packed, tmp_path / "again").samples == 6


def test_images_beside_files_of_these_names_are_a_folder_of_images(tmp_path: Path) -> None:
    """Names alone do not make a packed data set."""
    images(tmp_path / "images")
    (tmp_path / "images/catalog.fdc").mkdir()
    (tmp_path / "images/dataset.json").write_bytes(b"")

    assert pack(tmp_path / "images", tmp_path / "out").samples == 6


@pytest.mark.parametrize("page", [0, 1])
def test_an_lmdb_file_whose_mark_is_damaged_is_not_another_tools(
    packed: Path, tmp_path: Path, page: int
) -> None:
    """Its keys are numbers: read as another tool's, it would lose labels and names."""
    path = tmp_path / "one.lmdb"
    pack(packed, path)
    data = bytearray(path.read_bytes())
    data[(page + 1) * 4096 - len(MARK)] ^= 1
    path.write_bytes(data)

    with pytest.raises(ShardError, match="do not match their checksum"):
        pack(path, tmp_path / "out")


def test_a_catalog_that_leads_out_of_a_shard_is_refused(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset that a crafted catalog states is compared with the size of the shard."""
    rows = Catalog.rows

    def beyond(self: Catalog, ids: object) -> object:
        found = rows(self, ids)  # type: ignore[arg-type]
        found["offset"] = 2**64 - 1
        return found

    monkeypatch.setattr(Catalog, "rows", beyond)
    with pytest.raises(CatalogError, match="outside of its shard"):
        pack(packed, tmp_path / "out")


def test_a_whole_data_set_keeps_all(packed: Path, tmp_path: Path) -> None:
    """Packed again from shards and from LMDB, it has the same fingerprint."""
    pack(packed, tmp_path / "one.lmdb", shuffle=False)
    pack(tmp_path / "one.lmdb", tmp_path / "again", shuffle=False)

    assert open_source(tmp_path / "again").fingerprint == open_source(packed).fingerprint
