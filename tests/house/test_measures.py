"""The house stays easy to find one's way in: small rooms, files of one thing, short signatures."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from modules import MODULES
from places import ROOT

MOST_MODULES = 20
MOST_LINES = 400
MOST_PARAMETERS = 10

_ROOTS = ("fastdata", "converters", "loaders", "tests", "bench", "examples", "tools", "csrc")
_SUFFIXES = {".py", ".h", ".cpp"}

# What users call with keywords, each of which they may leave out.
PUBLIC = {
    "converters.pack.pack",
    "loaders.loader.Loader.__init__",
    "loaders.dali.loader.DALILoader.__init__",
    # commands: a parameter is an option
    "cli.bench.ceiling",
    "cli.bench.ladder",
    "cli.data.pack",
    "cli.doctor.doctor",
    "cli.training.train",
}


def _files() -> list[Path]:
    """Source files of the repository, each once: links are not followed."""
    return [
        path
        for root in _ROOTS
        for path in sorted((ROOT / root).rglob("*"))
        if path.suffix in _SUFFIXES and path.is_file()
    ]


FILES = _files()


def test_no_folder_holds_more_modules_than_one_can_overlook() -> None:
    """A header and its source are one module; `__init__` is the door of its folder."""
    modules = {path.with_suffix("") for path in FILES if path.stem != "__init__"}
    counts = Counter(str(module.parent.relative_to(ROOT)) for module in modules)

    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_file_is_longer_than_one_thing() -> None:
    """A file that grows beyond this holds two things."""
    lengths = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in FILES}

    assert {file: lines for file, lines in lengths.items() if lines > MOST_LINES} == {}


def _functions(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
    """Yield the functions of a tree by their dotted names, with their numbers of parameters."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{child.name}"
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            given = child.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            names = [one.arg for one in every if one is not None]
            yield inner, len(names) - (names[:1] in (["self"], ["cls"]))
        yield from _functions(child, inner)


@pytest.fixture(scope="module")
def parameters() -> dict[str, int]:
    """Number of parameters of every function of the package."""
    return dict(
        found
        for module, path in MODULES.items()
        for found in _functions(ast.parse(path.read_text(encoding="utf-8")), module)
    )


def test_inside_the_house_no_function_takes_many_parameters(parameters: dict[str, int]) -> None:
    """What a user chose travels as a few frozen objects, and not as a list of arguments."""
    many = {name: count for name, count in parameters.items() if count > MOST_PARAMETERS}

    assert {name: count for name, count in many.items() if name not in PUBLIC} == {}


def test_the_list_of_public_functions_is_true(parameters: dict[str, int]) -> None:
    """Whoever is on the list exists and needs to be; else the next one hides behind the name."""
    needed = {name for name in PUBLIC if parameters.get(name, 0) > MOST_PARAMETERS}

    assert needed == PUBLIC
