"""The pages: their links lead somewhere, and their Python is ours."""

import ast
import inspect
import operator
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastdata

ROOT = Path(__file__).parents[2]
FOLDERS = ("", "bench", "bench/results", "csrc", "docs")
PAGES = sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def _python(page: Path) -> Iterator[ast.Module]:
    for language, code in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            yield ast.parse(textwrap.dedent(code))


def _anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    """A file or folder that a page links is there, and so is the heading."""
    broken = []
    for link in _LINK.findall(_prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_on_pages_calls_what_there_is(page: Path) -> None:
    """Python blocks parse, and each call of `fd.` has a name and keywords that fastdata has."""
    for tree in _python(page):
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith("fd."):
                continue
            name = ast.unparse(call.func).removeprefix("fd.")
            keywords = {str(keyword.arg): None for keyword in call.keywords}
            function = operator.attrgetter(name)(fastdata)
            inspect.signature(function).bind(*call.args, **keywords)


def test_pages_have_code() -> None:
    """The search above finds it."""
    assert sum(1 for page in PAGES for _ in _python(page)) > 10
