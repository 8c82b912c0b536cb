"""Which module of the package may import which, read from the source without importing it."""

import subprocess
import sys
from graphlib import TopologicalSorter

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


def test_no_imports_go_in_a_circle() -> None:
    """Modules can be put into an order in which each comes after all that it imports."""
    graph = {module: _imports(module) for module in MODULES}

    assert set(TopologicalSorter(graph).static_order()) >= set(MODULES)


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("converters")])
def test_converters_name_no_torch(module: str) -> None:
    """Packing needs no torch: importing it takes seconds, and a packing machine may lack it."""
    names = {name.partition(".")[0] for name in imported_names(MODULES[module])}

    assert not names & {"torch", "torchvision"}


@pytest.mark.parametrize("module", ["fastdata.converters.pack", "fastdata.cli"])
def test_packing_and_help_load_no_torch(module: str) -> None:
    """Neither packing nor the command line loads torch, not even by way of another module."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
