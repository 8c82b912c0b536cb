"""Fields of a JSON object are taken by name and type, and none is forgotten."""

import json

import pytest

from fastdata.errors import ManifestError
from fastdata.system.untrusted import JsonFields, read_json


def fields(content: object) -> JsonFields:
    """Fields whose errors are ManifestErrors."""
    return JsonFields("it", content, ManifestError, "mend it")


def test_fields_of_the_right_type_are_taken() -> None:
    """Each kind of field comes as it is; at the end nothing is left."""
    digest = "sha256:" + "0f" * 32
    reader = fields({"a": 1, "b": [1, 2], "c": digest, "d": None, "e": {"x": True}})

    assert reader.count("a") == 1
    assert reader.list_of("b", int) == (1, 2)
    assert reader.digest_or_none("c") == digest
    assert reader.digest_or_none("d") is None
    assert reader.inner("e", reader.take("e", dict)).take("x", bool)
    reader.end()


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [], {}, -1])
def test_a_count_is_a_whole_number(value: object) -> None:
    """JSON's true is no number, nor is 1.0, nor is a text."""
    with pytest.raises(ManifestError, match=r"^it: 'a' must be .*; mend it$"):
        fields({"a": value}).count("a")


@pytest.mark.parametrize("value", ["", "sha256:", "sha256:" + "0F" * 32, "sha256:" + "0" * 65, 3])
def test_a_digest_has_one_spelling(value: object) -> None:
    """Lower-case digits, and exactly as many as SHA-256 has."""
    with pytest.raises(ManifestError, match="'a' must be"):
        fields({"a": value}).digest("a")
    with pytest.raises(ManifestError, match="'a' must be"):
        fields({"a": value}).digest_or_none("a")


def test_what_is_missing_or_left_over_is_named() -> None:
    """Both the reader and the writer of a file may have forgotten a field."""
    with pytest.raises(ManifestError, match="no field 'b'"):
        fields({"a": 1}).take("b", int)
    with pytest.raises(ManifestError, match="no field 'b'"):
        fields({"a": 1}).digest_or_none("b")
    with pytest.raises(ManifestError, match=r"unknown fields \['a'\]"):
        fields({"a": 1}).end()
    with pytest.raises(ManifestError, match="'a' must hold ints"):
        fields({"a": [1, "2"]}).list_of("a", int)


@pytest.mark.parametrize("content", [None, [], "x", 3])
def test_only_an_object_has_fields(content: object) -> None:
    """A list or a bare value is refused at once."""
    with pytest.raises(ManifestError, match="it: must be a JSON object"):
        fields(content)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"{", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": [-Infinity]}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "9999.* is out of range"),
        (b'{"a": {"b": 1, "b": 2}}', "comes twice"),
        (b"[" * 100_000, "64 deep"),
        (b"[" * 65 + b"]" * 65, "64 deep"),
        (b'{"a":' * 100_000, "64 deep"),
        (b'{"\\ud800": 1}', "half a character"),
        (b'["\\udc41"]', "half a character"),
        (b'["\x00"]', "not JSON"),
        (b"{} {}", "not JSON"),
    ],
)
def test_what_json_or_its_readers_cannot_hold_is_refused(text: bytes, problem: str) -> None:
    """Anything but strict JSON is an error of the file's own class, and names the file."""
    with pytest.raises(ManifestError, match=f"^it: (?=not JSON: ).*{problem}"):
        read_json(text, "it", ManifestError, "mend it")


def test_what_is_strict_json_is_read() -> None:
    """Numbers, nesting up to the limit, pairs of surrogates, and bytes that are no Unicode."""
    text = rb'{"a": [1, -2.5e3, 18446744073709551616, true, null, "\ud83d\ude00", "b\udcff"]}'
    deep = b"[" * 64 + b"]" * 64

    assert read_json(text, "it", ManifestError, "") == json.loads(text)
    assert read_json(deep, "it", ManifestError, "") == json.loads(deep)


def test_counts_fit_what_computes_with_them() -> None:
    """What counts things is no number that 64 bits cannot hold."""
    with pytest.raises(ManifestError, match="below 2"):
        fields({"a": 2**63}).count("a")
    with pytest.raises(ManifestError, match="'a' must hold numbers"):
        fields({"a": {"b": -1}}).counts("a")
