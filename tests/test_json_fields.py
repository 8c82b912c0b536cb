"""Fields of a JSON object are taken by name and type, and none is forgotten."""

import pytest

from fastdata.errors import ManifestError
from fastdata.json_fields import JsonFields


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
