"""The modules of the package, read from their source without importing them."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import fastdata


def _find_modules() -> dict[str, Path]:
    """Return the file of every module by its name without `fastdata.`."""
    root = Path(fastdata.__file__).parent
    modules = {}
    for folder, _, files in os.walk(root, followlinks=True):
        for path in (Path(folder, name) for name in files if name.endswith(".py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_folder = len(parts) > 1 and parts[-1] == "__init__"
            modules[".".join(parts[:-1] if is_folder else parts)] = path
    return modules


MODULES = _find_modules()


def imported_names(path: Path) -> Iterator[str]:
    """Yield what a file imports anywhere in it, as dotted names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner.removeprefix("fastdata.") in MODULES else str(node.module)
