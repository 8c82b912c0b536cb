"""Files with every field dropped, retyped or out of range: what a download may hold."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1.5, 1e308, "", "x", "../x", "a\0b"),
    *("\udcff", "\x1b[31m", [], {}, [[]], [None], [-1], [2**70], ["x", "x"], {"x": -1}, {"": []}),
)
TEXTS = (
    *(b"", b" ", b"\0", b"{}", b"[]", b"null", b"1", b'""', b"\xff\xfe{", b"{" * 9, b"}\n"),
    *(b'{"a": NaN}', b'{"a": 1e999}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1, "a": 2}'),
    *(b'{\n  "format": "fastdata"\n}\n', b'"\\ud800"', bytes(range(256))),
)


def mutations(content: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in which one value, anywhere, is missing or another."""
    yield from VALUES
    if isinstance(content, dict):
        for name, value in content.items():
            yield {other: content[other] for other in content if other != name}
            for inner in mutations(value):
                yield {**content, name: inner}
        yield {**content, "extra": 1}
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield content[:place] + content[place + 1 :]
            yield [*content, value]
            for inner in mutations(value):
                yield [*content[:place], inner, *content[place + 1 :]]


def spelled(content: Any) -> bytes:
    """JSON as manifests are spelled, with the digest that fits."""
    if isinstance(content, dict) and "digest" in content:
        rest = {name: value for name, value in content.items() if name != "digest"}
        text = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode("ascii")
        content = {**content, "digest": f"sha256:{hashlib.sha256(text).hexdigest()}"}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode("ascii")
