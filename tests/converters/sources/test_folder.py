"""The listing of a source is what ImageFolder sees, with everything else accounted for."""

import os
import pickle
import re
import socket
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from fastdata.converters.sources.listing import Listing, clashes
from fastdata.converters.sources.open import scan
from fastdata.dataset.manifest import count_reasons
from fastdata.errors import OptionError, SourceError

# One part of a path: anything but a slash, a NUL and a dot in front.
PART = (
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12)
    .map(os.fsencode)
    .map(lambda part: part[:60].lstrip(b".") or b"x")
    | st.binary(min_size=1, max_size=12).map(
        lambda part: re.sub(rb"[/\0]", b"_", part).lstrip(b".") or b"x"
    )
    | st.sampled_from([b"a.jpg", b"a.png", b"a-2.png", b"a.b.jpg", b"a_b.jpg", b"a_b-2.jpg"])
)
# webdataset's own way to split a name, and what it skips (tariterators.py).
SPLIT = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$", re.DOTALL)
SKIPPED = re.compile(rb"__[^/]*__($|/)")


def make(root: Path, *names: str | bytes) -> Path:
    """Makes files that hold their own name."""
    for name in names:
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(os.fsencode(name))
    return root


def names(listing: Listing) -> list[str]:
    """Names of all files."""
    return [os.fsdecode(listing.name(i)) for i in range(len(listing))]


def all_keys(listing: Listing) -> list[bytes]:
    """Keys of all files."""
    return [listing.key(i) for i in range(len(listing))]


def test_the_order_and_labels_are_those_of_imagefolder(tmp_path: Path) -> None:
    """Files, their order and their labels equal torchvision's ImageFolder's."""
    datasets = pytest.importorskip("torchvision.datasets")
    make(
        tmp_path,
        *("b/2.jpg", "b/10.jpg", "b/x/1.jpg", "b/x-y/1.jpg", "b/x/z/1.jpg", "B/1.jpg"),
        *("a b/1.png", "\u00e4/1.jpg", "\U0001f600/1.jpg", "\uffee/1.jpg", "a/~.jpg", "a/A.JPG"),
    )
    theirs = datasets.ImageFolder(tmp_path)

    ours = scan(tmp_path)

    assert list(ours.classes) == theirs.classes
    expected = [(os.fsencode(path), label) for path, label in theirs.samples]
    assert [(ours.path(i), int(ours.labels[i])) for i in range(len(ours))] == expected


def test_a_folder_without_folders_is_flat(tmp_path: Path) -> None:
    """There are no classes, and every label is -1."""
    listing = scan(make(tmp_path, "b.jpg", "a.jpg"))

    assert listing.classes == ()
    assert names(listing) == ["a.jpg", "b.jpg"]
    assert listing.labels.tolist() == [-1, -1]
    assert listing.sizes.tolist() == [5, 5]


def test_a_class_without_a_file_stays_a_class(tmp_path: Path) -> None:
    """Labels agree between parts of a data set although one part lacks a class."""
    make(tmp_path, "a/1.jpg", "c/1.jpg")
    (tmp_path / "b").mkdir()

    listing = scan(tmp_path)

    assert listing.classes == ("a", "b", "c")
    assert listing.labels.tolist() == [0, 2]


def test_what_is_left_out_is_listed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing disappears without a line that says why; none of it is opened."""
    make(tmp_path, "a/1.jpg", "readme.txt", ".DS_Store", "a/.hidden.jpg", ".git/config")
    (tmp_path / "a/empty.jpg").touch()
    os.mkfifo(tmp_path / "a/fifo.jpg")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path / "a")  # the path of a socket may be 108 bytes long
        listener.bind("socket.jpg")
    (tmp_path / "a/gone.jpg").symlink_to("nowhere")
    (tmp_path / "a/self.jpg").symlink_to("self.jpg")
    (tmp_path / "a/null.jpg").symlink_to("/dev/null")
    (tmp_path / "a/up").symlink_to("..")
    with (tmp_path / "a/large.jpg").open("wb") as file:
        file.truncate(2**32)

    listing = scan(tmp_path)

    assert names(listing) == ["a/1.jpg"]
    assert dict(listing.skipped) == {
        ".DS_Store": "hidden",
        ".git": "hidden",
        "readme.txt": "beside class folders",
        "a/.hidden.jpg": "hidden",
        "a/empty.jpg": "empty file",
        "a/fifo.jpg": "not a regular file: FIFO",
        "a/gone.jpg": "broken symbolic link",
        "a/large.jpg": "over 4 GiB",
        "a/null.jpg": "not a regular file: device",
        "a/self.jpg": "symbolic link loop",
        "a/socket.jpg": "not a regular file: socket",
        "a/up": "symbolic link loop",
    }
    assert count_reasons(listing.skipped)["not a regular file"] == 3


def test_links_are_followed(tmp_path: Path) -> None:
    """Linked files, class folders and inner folders count, as they do for ImageFolder."""
    make(tmp_path / "elsewhere", "x.jpg", "deep/y.jpg")
    make(tmp_path / "src", "a/1.jpg")
    (tmp_path / "src/b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "src/a/link").symlink_to(tmp_path / "elsewhere/deep")
    (tmp_path / "src/a/2.jpg").symlink_to("1.jpg")

    listing = scan(tmp_path / "src")

    assert names(listing) == ["a/1.jpg", "a/2.jpg", "a/link/y.jpg", "b/x.jpg", "b/deep/y.jpg"]


def test_folders_that_link_to_each_other_end(tmp_path: Path) -> None:
    """A loop over several folders is cut where it would enter one of its own ancestors."""
    make(tmp_path, "a/1.jpg", "b/1.jpg")
    (tmp_path / "a/to").symlink_to("../b")
    (tmp_path / "b/to").symlink_to("../a")

    listing = scan(tmp_path)

    assert names(listing) == ["a/1.jpg", "a/to/1.jpg", "b/1.jpg", "b/to/1.jpg"]
    assert [entry.name for entry in listing.skipped] == ["a/to/to", "b/to/to"]


def test_an_unreadable_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system refuses is skipped with the system's own words."""
    make(tmp_path, "a/1.jpg", "a/locked/2.jpg")
    real = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    listing = scan(tmp_path)

    assert names(listing) == ["a/1.jpg"]
    assert listing.skipped == (("a/locked", "unreadable: Permission denied"),)


def test_extensions_choose_files_by_name(tmp_path: Path) -> None:
    """For readers that open no file at this point, the ending decides, in any case."""
    make(tmp_path, "a/1.JPG", "a/2.png", "a/3.txt", "a/png", "a/4.tar.jpg")

    listing = scan(tmp_path, frozenset({"jpg", "png"}))

    assert names(listing) == ["a/1.JPG", "a/2.png", "a/4.tar.jpg"]
    assert dict(listing.skipped) == {
        "a/3.txt": "other extension: txt",
        "a/png": "other extension: none",
    }


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ([], "holds no image"),
        ([".x.jpg"], "1 hidden"),
        (["a/.x.jpg", "b.jpg"], r"1 beside class folders, 1 hidden \(first: 'b.jpg'\)"),
    ],
)
def test_a_source_without_a_file_is_refused(tmp_path: Path, setup: list[str], message: str) -> None:
    """The error says what was left out instead."""
    make(tmp_path, *setup)

    with pytest.raises(SourceError, match=message):
        scan(tmp_path)


def test_a_source_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    """Nothing there, and a file there, are two different errors."""
    with pytest.raises(SourceError, match="no such folder"):
        scan(tmp_path / "none")
    with pytest.raises(SourceError, match="not a folder"):
        scan(make(tmp_path, "a.jpg") / "a.jpg")


def test_the_fingerprint_follows_names_sizes_and_classes(tmp_path: Path) -> None:
    """It does not follow the place or the times; it is the same on every machine."""
    first = scan(make(tmp_path / "1", "a/x.jpg", "b/y.jpg"))
    second = make(tmp_path / "2", "a/x.jpg", "b/y.jpg")
    os.utime(second / "a/x.jpg", (1, 1))
    assert scan(second).fingerprint == first.fingerprint

    seen = {first.fingerprint}
    (second / "a/x.jpg").write_bytes(b"other size")
    seen.add(scan(second).fingerprint)
    (second / "a/x.jpg").rename(second / "a/z.jpg")
    seen.add(scan(second).fingerprint)
    (second / "c").mkdir()
    seen.add(scan(second).fingerprint)
    assert len(seen) == 4
    assert first.fingerprint == (
        "sha256:d5e61a36eb29c01d7522f680b5e06f9231fe1d06335bb991c15fae389e545af4"
    )


def test_files_of_the_same_stem_become_fields(tmp_path: Path) -> None:
    """They are no images, keep no place in the order, and are named where they miss an image."""
    make(
        tmp_path,
        *("a/1.jpg", "a/1.json", "a/1.txt", "a/2.b.jpg", "a/2.b.json", "a/3", "a/3.json"),
        *("a/4.png", "a/4.jpg", "a/4.txt", "a/5.json", "a/6.JSON", "a/.7.json", "b.json/8.jpg"),
    )
    (tmp_path / "a/empty.jpg").write_bytes(b"x")
    (tmp_path / "a/empty.txt").touch()
    os.mkfifo(tmp_path / "a/4.json")
    plain = scan(tmp_path)

    listing = scan(tmp_path, fields=("txt", "json"))

    assert listing.field_names == ("json", "txt")
    found = {
        name: {ending: tuple(value) for ending, value in listing.fields(i).items()}
        for i, name in enumerate(names(listing))
    }
    root = os.fsencode(tmp_path)
    assert found == {
        "a/1.jpg": {"json": (root + b"/a/1.json", 8), "txt": (root + b"/a/1.txt", 7)},
        "a/2.b.jpg": {"json": (root + b"/a/2.b.json", 10)},
        "a/3": {"json": (root + b"/a/3.json", 8)},
        "a/4.jpg": {"txt": (root + b"/a/4.txt", 7)},
        "a/4.png": {"txt": (root + b"/a/4.txt", 7)},
        "a/6.JSON": {},
        "a/empty.jpg": {"txt": (root + b"/a/empty.txt", 0)},
        "b.json/8.jpg": {},
    }
    assert dict(listing.skipped) == {
        "a/.7.json": "hidden",
        "a/4.json": "not a regular file: FIFO",
        "a/5.json": "field without an image",
    }
    assert listing.fingerprint != plain.fingerprint
    (tmp_path / "a/1.json").write_bytes(b"another size")
    assert scan(tmp_path, fields=("txt", "json")).fingerprint != listing.fingerprint


@pytest.mark.parametrize("name", ["JSON", "a.b", "", "cls", "__x", "label", "path"])
def test_fields_have_plain_names(tmp_path: Path, name: str) -> None:
    """A field is a member of a shard that webdataset reads back under its name."""
    with pytest.raises(OptionError, match="names of fields are of a-z"):
        scan(make(tmp_path, "a/1.jpg"), fields=(name,))


def test_classes_may_be_given_in_any_order(tmp_path: Path) -> None:
    """Labels follow the list, files stay in the order of folders, and keys do not change."""
    make(tmp_path, "ant/1.jpg", "bee/1.jpg", "__x__/1.jpg")
    plain = scan(tmp_path)

    listing = scan(tmp_path, classes=("cat", "bee", "__x__", "ant"))

    assert listing.classes == ("cat", "bee", "__x__", "ant")
    assert names(listing) == names(plain)
    assert listing.labels.tolist() == [2, 3, 1]
    assert all_keys(listing) == all_keys(plain)
    assert listing.fingerprint != plain.fingerprint
    with pytest.raises(SourceError, match="folder 'ant' is not among the 2 given classes"):
        scan(tmp_path, classes=("bee", "__x__"))
    with pytest.raises(SourceError, match="has no class folders"):
        scan(make(tmp_path / "flat", "1.jpg"), classes=("bee",))


def test_some_files_keep_what_they_have(tmp_path: Path) -> None:
    """A subset has the keys, labels and fields of its files, and all classes."""
    make(tmp_path, "a/x.jpg", "a/x.png", "a/x.webp", "b/y.jpg", "b/y.txt", "c/z.jpg")
    listing = scan(tmp_path, fields=("txt",))

    taken = listing.take(np.array([1, 3]))

    assert names(taken) == ["a/x.png", "b/y.jpg"]
    assert all_keys(taken) == [b"a/x-2", b"b/y"]
    assert taken.labels.tolist() == [0, 1]
    assert taken.classes == ("a", "b", "c")
    assert [taken.fields(i) for i in range(2)] == [listing.fields(1), listing.fields(3)]
    assert taken.size_of(1) == listing.size_of(3) == len("b/y.jpg") + len("b/y.txt")


def test_a_listing_can_be_sent_to_another_process(tmp_path: Path) -> None:
    """Readers in spawned workers get it pickled."""
    listing = scan(make(tmp_path, "a/x.jpg", "a/x.png"))

    assert all_keys(pickle.loads(pickle.dumps(listing))) == all_keys(listing)  # noqa: S301


def test_keys_of_common_names(tmp_path: Path) -> None:
    """No extension, dots replaced, slashes kept, clashes numbered around other names."""
    make(
        tmp_path,
        *("v1.0/a.b.jpg", "v1.0/a_b.jpg", "v1.0/x.jpg", "v1.0/x.png", "v1.0/x.webp"),
        *("v1.0/x-2.jpg", "v1.0/deep.er/x.jpg", "v1.0/none", "v1.0/end."),
    )

    listing = scan(tmp_path)

    assert dict(zip(names(listing), all_keys(listing), strict=True)) == {
        "v1.0/a.b.jpg": b"v1.0/a_b",
        "v1.0/a_b.jpg": b"v1.0/a_b-2",
        "v1.0/end.": b"v1.0/end",
        "v1.0/none": b"v1.0/none",
        "v1.0/x-2.jpg": b"v1.0/x-2",
        "v1.0/x.jpg": b"v1.0/x",
        "v1.0/x.png": b"v1.0/x-3",
        "v1.0/x.webp": b"v1.0/x-4",
        "v1.0/deep.er/x.jpg": b"v1.0/deep.er/x",
    }


def test_a_class_that_webdataset_would_drop_is_renamed(tmp_path: Path) -> None:
    """A first folder of the form __x__ means metadata to webdataset, which skips it silently."""
    make(tmp_path, "__background__/a.jpg", "_background__/a.jpg", "____/a.jpg")

    listing = scan(tmp_path)

    assert listing.classes == ("____", "__background__", "_background__")
    assert all_keys(listing) == [b"_/a", b"_background__-2/a", b"_background__/a"]


@given(
    paths=st.lists(st.lists(PART, min_size=1, max_size=3).map(b"/".join), min_size=1, max_size=12)
)
@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_keys_of_any_names(tmp_path_factory: pytest.TempPathFactory, paths: list[bytes]) -> None:
    """Keys are unique, webdataset splits KEY.jpg back into KEY and jpg, and skips none of them."""
    root = tmp_path_factory.mktemp("any")
    for path in paths:
        try:
            make(root, b"class/" + path)
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            continue
    listing = scan(root)

    found = all_keys(listing)

    assert len(set(found)) == len(found)
    for i, key in enumerate(found):
        match = SPLIT.match(key + b".jpg")
        assert match is not None
        assert match.groups() == (key, b"jpg")
        assert SKIPPED.match(key + b".jpg") is None
        assert key.rpartition(b"/")[0] == listing.name(i).rpartition(b"/")[0]


def test_clashes_scale() -> None:
    """Twenty thousand files of one stem are numbered without trying every number again."""
    assert clashes([f"x.{i}" for i in range(20_000)])[19_999] == 20_000
