"""No module but ``files`` opens a file to write: that is where links are not followed."""

import ast
from collections.abc import Iterator

import pytest
from modules import MODULES

# What opens something that has no name in any folder, or a file of the system.
ALLOWED = {
    ("converters.sources.spool", "tempfile.TemporaryFile"): "a file without a name",
    ("converters.sources.formats.lmdb", "open"): "py-lmdb, to read and without its lock file",
    ("train.checkpoint", "save"): "into the file that write_atomically opened",
    ("converters.images.recode", "save"): "into memory",
    ("report.charts", "savefig"): "into memory",
    ("bench.run", "save"): "what the caller does with the report",
    ("cli.standard_streams", "os.open"): "/dev/null, in place of a stream that is closed",
    ("batch.workers", "open"): "/proc/PID/fd of this program's own memory",
    ("bench.usage", "write_text"): "/proc/self/clear_refs",
}

_METHODS = {
    *("write_text", "write_bytes", "touch", "symlink_to", "hardlink_to"),
    *("save", "savefig", "tofile", "imwrite"),
}
_FUNCTIONS = {f"os.{name}" for name in ("truncate", "link", "symlink", "mkfifo", "mknod")}
_TO_READ = {"O_RDONLY", "O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW"}


def _name(node: ast.expr) -> str:
    """A dotted name as it is written, or the end of one."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def _writes(call: ast.Call) -> str | None:
    """What a call writes with, by its name; None for one that does not write."""
    name = _name(call.func)
    module, _, last = name.rpartition(".")
    if name == "os.open":
        return None if _flags(call.args[1]) <= _TO_READ else name
    if last == "open":
        place = 0 if module not in ("", "io") else 1  # Path.open takes no path
        return last if _is_for_writing(call, place) else None
    if name in _FUNCTIONS or (module == "tempfile" and last != "gettempdir"):
        return name
    if module == "shutil" and last.startswith(("copy", "move")):
        return name
    return last if last in _METHODS else None


def _flags(node: ast.expr) -> set[str]:
    """Flags of os.open; whatever is not a flag by its name counts, too."""
    if isinstance(node, ast.BinOp):
        return _flags(node.left) | _flags(node.right)
    return {_name(node).removeprefix("os.")}


def _is_for_writing(call: ast.Call, place: int) -> bool:
    """Whether the mode of an open is one to write, or is not known."""
    modes = [*call.args[place : place + 1], *(k.value for k in call.keywords if k.arg == "mode")]
    return any(
        not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))
        for mode in modes
    )


def _found(module: str) -> Iterator[tuple[str, int]]:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (what := _writes(node)) is not None:
            yield what, node.lineno


def test_only_one_module_opens_files_to_write() -> None:
    """All others go through it, but for a few that write to no folder that could be a download."""
    found = {
        (module, what): line
        for module in MODULES
        if module != "system.files"
        for what, line in _found(module)
    }
    assert found.keys() == ALLOWED.keys(), found


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("open(p, 'w')", True),
        ("open(p, mode=m)", True),
        ("open(p)", False),
        ("p.open('ab')", True),
        ("p.open()", False),
        ("os.open(p, os.O_WRONLY)", True),
        ("os.open(p, flags)", True),
        ("os.open(p, os.O_RDONLY | os.O_CLOEXEC)", False),
        ("p.write_bytes(b'')", True),
        ("shutil.copy(a, b)", True),
        ("values.copy()", False),
        ("tempfile.mkstemp()", True),
        ("os.fdopen(fd, 'wb')", False),
    ],
)
def test_the_rule_sees_what_writes(code: str, *, writes: bool) -> None:
    """Names of calls that open, copy or link."""
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert (_writes(call) is not None) == writes
