"""Sources from a list: CSV and JSON lines with labels and fields."""

import csv
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from packing import picture

from fastdata.converters.images.coding import Coding
from fastdata.converters.sources.file_list import list_from, read_classes
from fastdata.converters.sources.listing import Listing
from fastdata.converters.sources.open import scan
from fastdata.converters.stages import Loaded, load
from fastdata.dataset.manifest import Skipped
from fastdata.errors import SourceError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four images in two folders, and one beside them."""
    root = tmp_path / "images"
    for number, name in enumerate(["a/1.jpg", "a/1.png", "a/x.y.jpg", "b/2.jpg", "top.jpg"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(number, "PNG" if name.endswith("png") else "JPEG"))
    return root


def as_csv(path: Path, *rows: list[str]) -> Path:
    """A CSV file as Python writes it."""
    with path.with_suffix(".csv").open("w", newline="", errors="surrogateescape") as file:
        csv.writer(file).writerows(rows)
    return path.with_suffix(".csv")


def as_lines(path: Path, *rows: Mapping[str, Any]) -> Path:
    """JSON lines."""
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def samples(listing: Listing) -> list[tuple[str, int, dict[str, Any]]]:
    """Name, label and fields of every file."""
    return [
        (os.fsdecode(listing.name(i)), int(listing.labels[i]), dict(listing.fields(i)))
        for i in range(len(listing))
    ]


def test_csv_and_json_lines_say_the_same(root: Path, tmp_path: Path) -> None:
    """Labels and fields come from either; the order of the list stays; so does the fingerprint."""
    rows = [["path", "label", "txt"], ["b/2.jpg", "dog", 'a "b",\nc'], ["./a//1.jpg", "cat", ""]]
    objects: list[dict[str, Any]] = [
        {"path": "b/2.jpg", "label": "dog", "txt": 'a "b",\nc'},
        {"path": "a/1.jpg", "label": "cat", "txt": None},
    ]

    ours = list_from(as_csv(tmp_path / "list", *rows), root)
    theirs = list_from(as_lines(tmp_path / "list", *objects), root)

    assert ours.classes == theirs.classes == ("cat", "dog")
    assert samples(ours) == [("b/2.jpg", 1, {"txt": b'a "b",\nc'}), ("a/1.jpg", 0, {})]
    assert samples(ours) == samples(theirs)
    assert ours.fingerprint == theirs.fingerprint
    assert ours.field_names == ("txt",)
    assert ours.sizes.tolist() == [(root / name).stat().st_size for name in ("b/2.jpg", "a/1.jpg")]


def test_values_of_json_become_canonical_json(root: Path, tmp_path: Path) -> None:
    """Text is stored as it is, all else as JSON that has one spelling; a late column fits in."""
    boxes = {"b": [1, 2.5], "a": {"\u00e4": None}}
    rows: list[dict[str, Any]] = [
        {"path": "a/1.jpg", "txt": "\u6d77"},
        {"path": "a/1.png", "txt": "", "json": boxes, "n": 3, "ok": True},
        {"path": "b/2.jpg", "json": []},
    ]

    found = samples(list_from(as_lines(tmp_path / "list", *rows), root))

    assert [fields for _, _, fields in found] == [
        {"txt": "\u6d77".encode()},
        {"txt": b"", "json": b'{"a":{"\\u00e4":null},"b":[1,2.5]}', "n": b"3", "ok": b"true"},
        {"json": b"[]"},
    ]


def test_keys_are_those_of_a_folder(root: Path, tmp_path: Path) -> None:
    """Whatever the order of the list, files of one stem are numbered as a scan numbers them."""
    (root / "top.jpg").unlink()
    scanned = scan(root)
    expected = {scanned.name(i): scanned.key(i) for i in range(len(scanned))}
    names = [os.fsdecode(name) for name in expected][::-1]

    listing = list_from(as_lines(tmp_path / "list", *({"path": name} for name in names)), root)

    assert {listing.name(i): listing.key(i) for i in range(len(listing))} == expected
    assert len(set(expected.values())) == len(expected)


@pytest.mark.parametrize(
    ("labels", "classes", "names", "expected"),
    [
        (["b", "a", None], None, ("a", "b"), [1, 0, -1]),
        ([2, 0, None], None, ("0", "1", "2"), [2, 0, -1]),
        (["2", "0", "-1"], None, ("0", "1", "2"), [2, 0, -1]),
        (["b", "7", ""], None, ("7", "b"), [1, 0, -1]),
        (["b", "a", "b"], ("b", "x", "a"), ("b", "x", "a"), [0, 2, 0]),
        ([1, 0, -1], ("b", "x"), ("b", "x"), [1, 0, -1]),
        (["1", "0", "x"], ("1", "x"), ("1", "x"), [0, 0, 1]),
        ([None, None, None], None, (), [-1, -1, -1]),
        ([None, None, None], ("a",), ("a",), [-1, -1, -1]),
    ],
)
def test_labels_are_names_or_numbers(
    root: Path,
    tmp_path: Path,
    labels: list[Any],
    classes: tuple[str, ...] | None,
    names: tuple[str, ...],
    expected: list[int],
) -> None:
    """Names are sorted unless given, numbers count up, given names win over numbers."""
    files = ["a/1.jpg", "b/2.jpg", "top.jpg"]
    rows: list[dict[str, Any]] = [
        {"path": path, "label": label} for path, label in zip(files, labels, strict=True)
    ]

    listing = list_from(as_lines(tmp_path / "list", *rows), root, classes)

    assert listing.classes == names
    assert listing.labels.tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label\n1\n", r"no column 'path' among \['label'\]"),
        ("path,path\na/1.jpg,x\n", "column 'path' is repeated"),
        ("path,txt\na/1.jpg\n", "line 2: 1 values for 2 columns"),
        ("path\na/1.jpg\n\n../x.jpg\n", r"line 4: path '../x.jpg' must be relative to .*images"),
        ("path\n/etc/passwd\n", "line 2: path '/etc/passwd' must be relative"),
        ("path\na/../../x\n", "line 2: .* stay within it"),
        ("path\n./\n", "line 2: .* must be relative"),
        ("path,txt\n,x\n", "line 2: path None must be the path of an image"),
        ("path,Text\na/1.jpg,x\n", "line 2: field 'Text': names of fields are of a-z, 0-9 and _"),
        ("path,cls\na/1.jpg,x\n", "line 2: field 'cls'"),
        ("path,__key__\na/1.jpg,x\n", "line 2: field '__key__'"),
        ("path\na/1.jpg\nb/2.jpg\na/./1.jpg\n", "line 4: the same file as line 2"),
        ('path\n"a/1.jpg\n', "line 2: unexpected end of data"),
        ("path,txt\na/1.jpg," + "x" * 140_000 + "\n", "line 2: field larger than field limit"),
        ("path\nnone.jpg\n", r"holds no image; left out: 1 no such file \(first: 'none.jpg'\)"),
        ("", "holds no image"),
    ],
)
def test_a_csv_that_breaks_a_rule_is_refused(
    root: Path, tmp_path: Path, text: str, message: str
) -> None:
    """The error gives the number of the line and the rule."""
    (tmp_path / "list.csv").write_text(text)

    with pytest.raises(SourceError, match=message):
        list_from(tmp_path / "list.csv", root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "line 1: not an object"),
        ('{"path": "a/1.jpg"', "line 1: not JSON"),
        ('\n{"path": "a/1.jpg", "path": "b/2.jpg"}', "line 2: not JSON: a name comes twice"),
        ('{"path": "a/1.jpg", "x": NaN}', "line 1: not JSON: NaN"),
        ('{"path": "a/1.jpg", "x": ' + "[" * 100_000, "line 1: not JSON"),
        ('{"path": 3}', "line 1: path 3 must be the path"),
        ('{"path": "a\\u0000b"}', "must be relative to"),
        ('{"path": "\\ud800"}', "line 1: not JSON: .* half a character"),
        ('{"path": "a/1.jpg", "txt": "\\ud800"}', "line 1: not JSON: .* half a character"),
        ('{"path": "a/1.jpg", "label": 1.5}', "label 1.5 must be the name of a class"),
        ('{"path": "a/1.jpg", "label": true}', "label True must be"),
        ('{"path": "a/1.jpg", "label": -2}', "line 1: label '-2' must be from 0 to 999999"),
        (
            '{"path": "a/1.jpg", "label": "x"}\n{"path": "b/2.jpg", "label": 1}',
            "line 2: label 1 is a number, others are names",
        ),
        ('{"path": "a/1.jpg"}\n\xff', "line 2: not JSON"),
    ],
)
def test_json_lines_that_break_a_rule_are_refused(
    root: Path, tmp_path: Path, text: str, message: str
) -> None:
    """The error gives the number of the line and the rule."""
    (tmp_path / "list.jsonl").write_bytes(text.encode("latin-1"))

    with pytest.raises(SourceError, match=message):
        list_from(tmp_path / "list.jsonl", root)


def test_labels_that_are_no_class_are_refused(root: Path, tmp_path: Path) -> None:
    """A name or number beyond the classes given is named with its line."""
    for label, message in [
        ("c", "label 'c' is none of the 2"),
        (2, "label '2' must be from 0 to 1"),
    ]:
        rows: list[dict[str, Any]] = [
            {"path": "a/1.jpg", "label": "a"},
            {"path": "b/2.jpg", "label": label},
        ]
        with pytest.raises(SourceError, match=f"line 2: {message}"):
            list_from(as_lines(tmp_path / "list", *rows), root, ("a", "b"))


def test_what_is_not_there_is_listed(root: Path, tmp_path: Path) -> None:
    """Rows without a usable file are left out with a reason, and their classes stay."""
    os.mkfifo(root / "fifo.jpg")
    (root / "gone.jpg").symlink_to("nowhere")
    (root / "empty.jpg").touch()
    names = ["a/1.jpg", "none.jpg", "a", "fifo.jpg", "gone.jpg", "empty.jpg", "x" * 300]
    rows = [{"path": name, "label": f"class {i}"} for i, name in enumerate(names)]

    listing = list_from(as_lines(tmp_path / "list", *rows), root)

    assert [name for name, _, _ in samples(listing)] == ["a/1.jpg"]
    assert len(listing.classes) == 7
    assert [entry.reason for entry in listing.skipped] == [
        "no such file",
        "not a regular file: folder",
        "not a regular file: FIFO",
        "broken symbolic link",
        "empty file",
        "unreadable: File name too long",
    ]


def test_lists_and_roots_that_are_not_there_are_refused(root: Path, tmp_path: Path) -> None:
    """Each says which file, and what kinds of list there are."""
    with pytest.raises(SourceError, match=r"none.csv: cannot read this list: No such file"):
        list_from(tmp_path / "none.csv", root)
    with pytest.raises(SourceError, match=r"list.txt: a list must be a .csv file, or JSON lines"):
        list_from(tmp_path / "list.txt", root)
    with pytest.raises(SourceError, match="not a folder"):
        list_from(tmp_path / "none.csv", root / "a/1.jpg")


def test_the_fingerprint_follows_all_of_a_list(root: Path, tmp_path: Path) -> None:
    """Paths, labels, classes and fields count; the place of the list does not."""
    base = {"path": "a/1.jpg", "label": "a", "txt": "x"}
    variants: list[dict[str, Any]] = [
        base,
        {**base, "path": "b/2.jpg"},
        {**base, "label": "b"},
        {**base, "label": None},
        {**base, "txt": "y"},
        {**base, "txt": None},
        {**base, "txt": ""},
        {"path": "a/1.jpg", "label": "a", "text": "x"},
    ]
    prints = {
        list_from(as_lines(tmp_path / str(i), row), root, ("a", "b")).fingerprint
        for i, row in enumerate(variants)
    }

    assert len(prints) == len(variants)
    assert list_from(as_lines(tmp_path / "2nd", base), root, ("a", "b")).fingerprint in prints
    assert list_from(as_lines(tmp_path / "3rd", base), root, ("a",)).fingerprint not in prints


def test_names_that_are_no_text_work(root: Path, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 stand in a CSV as they are, in JSON as lone surrogates."""
    name = b"a/\xff\xfe.jpg"
    with open(os.path.join(os.fsencode(root), name), "wb") as file:
        file.write(picture(1))
    (tmp_path / "list.csv").write_bytes(b"\xef\xbb\xbfpath,txt\r\n" + name + b",\xe9\r\n")

    from_csv = list_from(tmp_path / "list.csv", root)
    from_json = list_from(as_lines(tmp_path / "list", {"path": os.fsdecode(name)}), root)

    assert from_csv.name(0) == from_json.name(0) == name
    assert from_csv.fields(0) == {"txt": b"\xe9"}


def test_fields_are_loaded_with_the_image(root: Path, tmp_path: Path) -> None:
    """What load gives holds the fields; one that is called like the image's own is refused."""
    rows = [["path", "txt", "png"], ["a/1.jpg", "one", "mask"], ["a/1.png", "two", "mask"]]
    listing = list_from(as_csv(tmp_path / "list", *rows), root)

    first, second = (load(listing, place, Coding(None)) for place in (0, 1))

    assert isinstance(first, Loaded)
    assert first.fields == {"png": b"mask", "txt": b"one"}
    assert second == Skipped("a/1.png", "no usable field: png: the image itself has this extension")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("b\na\n", ("b", "a")),
        ("b\r\na b", ("b", "a b")),
        ("\ufeff\u6d77\n", ("\u6d77",)),
        ("a\n\nb\n", "line 2 is empty"),
        ("", "line 1 is empty"),
        ("a\nb\na\n", "line 3: 'a' is already in line 1"),
    ],
)
def test_classes_are_read_line_by_line(
    tmp_path: Path, text: str, names: tuple[str, ...] | str
) -> None:
    """One name a line in the order of labels; an empty or repeated one is an error."""
    path = tmp_path / "classes.txt"
    path.write_bytes(text.encode())

    if isinstance(names, tuple):
        assert read_classes(path) == names
    else:
        with pytest.raises(SourceError, match=re.escape(names)):
            read_classes(path)


VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@given(rows=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=8), data=st.data())
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_comes_back(root: Path, rows: list[tuple[str, str]], data: st.DataObject) -> None:
    """Labels and texts of any kind are read back from what Python's csv and json write."""
    files = [f"t{i}.jpg" for i in range(len(rows))]
    for name in files:
        (root / name).write_bytes(b"x")
    table = [["path", "label", "txt"], *([f, *row] for f, row in zip(files, rows, strict=True))]
    objects = [{"path": f, "label": a, "txt": b} for f, (a, b) in zip(files, rows, strict=True)]
    classes = tuple(sorted({label for label, _ in rows if label})) or None

    found = samples(list_from(as_lines(root / "list", *objects), root, classes))
    assert [fields["txt"] for _, _, fields in found] == [text.encode() for _, text in rows]
    labels = [classes.index(label) if classes and label else -1 for label, _ in rows]
    assert [label for _, label, _ in found] == labels
    theirs = samples(list_from(as_csv(root / "list", *table), root, classes))
    assert [row[:2] for row in theirs] == [row[:2] for row in found]
    assert [row[2].get("txt", b"") for row in theirs] == [row[2]["txt"] for row in found]


def test_some_of_a_listing(root: Path, tmp_path: Path) -> None:
    """A subset keeps keys, labels, classes and fields, and has a fingerprint of its own."""
    names = ["a/1.jpg", "a/1.png", "a/x.y.jpg", "b/2.jpg", "top.jpg"]
    rows = [
        {"path": name, "label": name[0], "txt": name if i else None} for i, name in enumerate(names)
    ]
    listing = list_from(as_lines(tmp_path / "list", *rows), root)
    places = np.array([4, 1, 0])

    taken = listing.take(places)

    assert samples(taken) == [samples(listing)[place] for place in places]
    assert [taken.key(i) for i in range(3)] == [listing.key(place) for place in places.tolist()]
    assert taken.classes == listing.classes
    assert taken.sizes.tolist() == listing.sizes[places].tolist()
    assert taken.take(np.array([1])).key(0) == b"a/1-2"
    prints = {listing.take(np.array(some)).fingerprint for some in ([0], [1], [0, 1], [1, 0])}
    assert len({listing.fingerprint, *prints}) == 5
    assert len(listing.take(np.array([], np.int64))) == 0
