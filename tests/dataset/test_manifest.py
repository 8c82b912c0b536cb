"""The manifest has one spelling, and every other byte is an error."""

import dataclasses
import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fastdata.dataset import manifest
from fastdata.dataset.manifest import Manifest, Shard, Stored
from fastdata.errors import ManifestError, NotADatasetError


def sha(digit: str) -> str:
    """A digest of one repeated digit."""
    return f"sha256:{digit * 64}"


SMALL = Manifest(
    kind="tar",
    samples=3,
    classes=("ant", "b\udcff", "\u6d77"),
    class_counts=(1, 0, 2),
    fields=("json",),
    options={"keep_bytes": True, "seed": None, "shard_size": 10, "shuffle": False},
    source=sha("0"),
    skipped={"empty file": 2},
    report=Stored(70, sha("6")),
    kept={"more than 10 blocks an MCU": 1},
    noted={"first of several frames": 1},
    shards=(
        Shard(4096, sha("1"), "shard-000000.tar", 2, sha("2")),
        Shard(2048, sha("3"), "shard-000001.tar", 1, None),
    ),
    catalog=Stored(300, sha("4")),
    fingerprint=sha("5"),
)


def altered(**changes: object) -> bytes:
    """The encoded manifest with other values, spelled as a manifest with a digest made to fit."""
    return dataclasses.replace(SMALL, **changes).encode()  # type: ignore[arg-type]


def test_a_manifest_comes_back_as_it_went_in() -> None:
    """Reading gives what was written, names that are no text included."""
    assert manifest.parse(SMALL.encode(), "it") == SMALL


# all that a file system can have in a name: Unicode, and bytes that are none
_CHARACTERS = st.characters(codec="utf-8") | st.characters(
    min_codepoint=0xDC80, max_codepoint=0xDCFF
)


@given(
    classes=st.lists(st.text(_CHARACTERS, max_size=20), max_size=4),
    skipped=st.dictionaries(st.text(max_size=10), st.integers(0, 2**60), max_size=3),
    seed=st.integers(-(2**70), 2**70),
)
def test_any_names_and_numbers_survive(
    classes: list[str], skipped: dict[str, int], seed: int
) -> None:
    """No class name and no number is too odd."""
    odd = dataclasses.replace(
        SMALL,
        classes=tuple(classes),
        class_counts=(0,) * len(classes),
        skipped=skipped,
        options={"seed": seed},
    )

    assert manifest.parse(odd.encode(), "it") == odd


def test_the_bytes_are_the_same_everywhere() -> None:
    """Sorted names, ASCII, no time: the digest of the digest is fixed."""
    data = SMALL.encode()

    assert data.isascii()
    content = json.loads(data)
    assert list(content) == sorted(content)
    assert content["digest"] == (
        "sha256:ca4b087ca1e0f6d7630c0d786b3e4367591a9b3de0a249121e3ad36dd470eefc"
    )


def test_every_flipped_bit_is_detected() -> None:
    """No bit can change unseen, be it in a number, a name or the space between them."""
    good = SMALL.encode()
    silent = []
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            manifest.parse(bytes(bad), "it")
        except ManifestError:
            continue
        silent.append(bit)

    assert silent == []


def test_every_other_length_is_detected() -> None:
    """A manifest that was cut, or has something behind it, is refused."""
    good = SMALL.encode()
    for bad in [*(good[:length] for length in range(len(good))), good + b"\n", good + b" "]:
        with pytest.raises(ManifestError, match=r"^it: "):
            manifest.parse(bad, "it")


@pytest.mark.parametrize("name", json.loads(SMALL.encode()))
def test_every_field_is_checked_by_name(name: str) -> None:
    """A field that is missing, or of another type, is named by the error."""
    content = json.loads(SMALL.encode())
    value = content.pop(name)
    with pytest.raises(ManifestError, match=f"no field '{name}'"):
        manifest.parse(json.dumps(content).encode(), "it")
    content[name] = 1.5
    with pytest.raises(ManifestError, match=f"'{name}' must be"):
        manifest.parse(json.dumps(content).encode(), "it")
    content[name] = value
    content["extra"] = 1
    with pytest.raises(ManifestError, match="unknown fields \\['extra'\\]"):
        manifest.parse(json.dumps(content).encode(), "it")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": "zip"}, "neither tar nor lmdb"),
        ({"samples": 4}, "do not hold 4 samples"),
        ({"class_counts": (1,)}, "1 class_counts for 3 classes"),
        ({"skipped": {"x": "y"}}, "'skipped' must hold numbers"),
        ({"shards": (Shard(1, sha("1"), "../evil.tar", 3, None),)}, "not a plain file name"),
        ({"shards": (Shard(1, sha("1"), "..", 3, None),)}, "not a plain file name"),
        ({"shards": (Shard(-1, sha("1"), "a.tar", 3, None),)}, "'bytes' must be 0 or more"),
        ({"shards": (Shard(1, "md5:1", "a.tar", 3, None),)}, "'digest' must be sha256"),
        ({"source": ""}, "'source' must be sha256"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    changes: dict[str, object], problem: str
) -> None:
    """A digest that fits does not make a crafted manifest a good one."""
    with pytest.raises(ManifestError, match=problem):
        manifest.parse(altered(**changes), "it")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff\xfe", b"{" * 100_000, b"[" * 100_000])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    """Anything at all under the name of a manifest gives a ManifestError."""
    with pytest.raises(ManifestError, match=r"^it: "):
        manifest.parse(data, "it")


def test_another_version_is_told() -> None:
    """A data set of a later program is not called damaged."""
    data = SMALL.encode().replace(b'"version": 1', b'"version": 2')

    with pytest.raises(ManifestError, match="version 2, this program reads version 1"):
        manifest.parse(data, "it")


def test_load_tells_an_unfinished_pack_from_no_data_set(tmp_path: Path) -> None:
    """Shards without a manifest are work to be done; a folder without either is no data set."""
    with pytest.raises(NotADatasetError, match="no such"):
        manifest.load(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADatasetError, match="not a folder"):
        manifest.load(tmp_path / "file")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(NotADatasetError, match="nor shards"):
        manifest.load(folder)
    for name in ("shard-000000.tar.tmp", "shard-000007.tar", ".pack.journal"):
        (folder / name).touch()
        with pytest.raises(ManifestError, match="unfinished pack"):
            manifest.load(folder)
        (folder / name).unlink()
    (tmp_path / "x.lmdb.tmp").touch()
    with pytest.raises(ManifestError, match="unfinished pack"):
        manifest.load(tmp_path / "x.lmdb")


def test_load_reads_the_file(tmp_path: Path) -> None:
    """A whole folder gives its manifest; errors name the file."""
    path = tmp_path / "dataset.json"
    path.write_bytes(SMALL.encode())
    assert manifest.load(tmp_path) == SMALL

    path.write_bytes(b"{}")
    with pytest.raises(ManifestError, match=str(path)):
        manifest.load(tmp_path)


def test_the_fingerprint_follows_the_content() -> None:
    """Labels, classes, fields and the digest of any shard change it; names of shards do not."""
    base = manifest.fingerprint(SMALL.classes, SMALL.fields, SMALL.shards, "00")
    renamed = (dataclasses.replace(SMALL.shards[0], name="a.tar"), SMALL.shards[1])
    other = (dataclasses.replace(SMALL.shards[0], digest=sha("9")), SMALL.shards[1])

    assert manifest.fingerprint(SMALL.classes, SMALL.fields, renamed, "00") == base
    different = {
        base,
        manifest.fingerprint(("ant",), SMALL.fields, SMALL.shards, "00"),
        manifest.fingerprint(SMALL.classes, (), SMALL.shards, "00"),
        manifest.fingerprint(SMALL.classes, SMALL.fields, other, "00"),
        manifest.fingerprint(SMALL.classes, SMALL.fields, SMALL.shards[::-1], "00"),
        manifest.fingerprint(SMALL.classes, SMALL.fields, SMALL.shards, "01"),
    }
    assert len(different) == 6
