"""Which module of the package may import which, read from the source without importing it."""

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from modules import MODULES, imported_names

# The way of the data, from top to bottom: a room imports only from rooms above its own. Modules of
# one room may import each other, but not in a circle.
ORDER = [
    "errors",
    "_core",
    "native",
    "images",
    "system",
    "dataset",
    "plan",
    "batch",
    "device",
    "photos",
    "converters",
    "loaders",
    "train",
    "bench",
    "__init__",  # the facade: what users import
    "report",
    "doctor",
    "demo",
    "cli",
    "__main__",
]

# The same inside two rooms, of their folders. Modules that lie beside the folders put together what
# is in them, or are what several share: those may import and be imported, if not in a circle.
INSIDE = {
    "converters": ["images", "tar", "lmdb", "sources", "check"],
    "loaders": ["readers", "dali"],
}


def _imports(module: str) -> set[str]:
    """Return the modules of the package that one of them imports."""
    names = imported_names(MODULES[module])
    ours = (name for name in names if name.partition(".")[0] == "fastdata")
    return {name.partition(".")[2] or "__init__" for name in ours}


def _place(module: str) -> int:
    return ORDER.index(module.partition(".")[0])


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_up(module: str) -> None:
    """A module imports, at its top or in a function, only what stands above it in the order."""
    assert module.partition(".")[0] in ORDER, "give the new module its place in ORDER"

    for imported in _imports(module):
        inside = module.partition(".")[0] == imported.partition(".")[0]
        assert inside or _place(imported) < _place(module), f"{module} imports {imported}"


def _folder(module: str) -> str:
    """Return the folder inside a room that a module lies in; nothing for one beside the folders."""
    room, name = module.split(".")[:2]
    return name if MODULES[f"{room}.{name}"].name == "__init__.py" else ""


@pytest.mark.parametrize("room", INSIDE)
def test_imports_point_up_inside_a_room(room: str) -> None:
    """Its folders have an order, too."""
    inside = {module: _folder(module) for module in MODULES if module.startswith(f"{room}.")}
    assert {*inside.values()} - {""} == {*INSIDE[room]}, "give the new folder its place in INSIDE"

    for module, folder in inside.items():
        for imported in _imports(module):
            other = inside.get(imported, "")
            if folder and other:
                order = INSIDE[room]
                assert order.index(other) <= order.index(folder), f"{module} imports {imported}"


def test_no_imports_go_in_a_circle() -> None:
    """Modules can be put into an order in which each comes after all that it imports."""
    graph = {module: _imports(module) for module in MODULES}

    assert set(TopologicalSorter(graph).static_order()) >= set(MODULES)


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("converters")])
def test_converters_name_no_torch(module: str) -> None:
    """Packing needs no torch: importing it takes seconds, and a packing machine may lack it."""
    names = {name.partition(".")[0] for name in imported_names(MODULES[module])}

    assert not names & {"torch", "torchvision"}


_NO_TORCH = """
import sys
from fastdata.cli.commands import app
folder, packed = sys.argv[1:]
for arguments in ["--help"], ["pack", folder, packed], ["info", packed], ["verify", packed]:
    try:
        app(arguments)
    except SystemExit as end:
        assert not end.code, arguments
    assert "torch" not in sys.modules, arguments
"""


def test_commands_that_need_no_torch_load_none(folder: Path, tmp_path: Path) -> None:
    """Help, packing, info and verify start without the seconds that loading torch takes."""
    command = [sys.executable, "-c", _NO_TORCH, str(folder), str(tmp_path / "set")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)

    assert done.returncode == 0, done.stderr
