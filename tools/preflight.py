"""Check what `make` needs before it installs anything, and name the one command that adds the rest.

Run as `PYTHON tools/preflight.py` by the Makefile, with the interpreter that .venv is to have. What
a person should know goes to stderr. Stdout gets one line on the interpreter and on whether the
native core can be built: when that line changes, the Makefile makes .venv anew. That Python is 3.11
or later was checked there, because an older one cannot even compile this file.

Run as `PYTHON tools/preflight.py --calls` by `make check`, it refuses calls that no file of the
package may make: what runs code that came with data, a shell, or an archive's own paths.

Exit codes: 0 go on (without the native core if need be), 1 impossible, or a call that is refused.
"""

import ast
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

BUNDLED_JPEG = (3, 12)  # from here on the build dependency comma-deps-libjpeg brings libjpeg-turbo
BUNDLED_JPEG_ON = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")}

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ("fastdata", "converters", "loaders", "csrc")
MODULES = {
    *("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"),
    *("pty", "commands", "imp", "code", "codeop"),
}
NAMES = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {"extractall", "extract", "extractfile", "unpack_archive"}
QUALIFIED = {
    *("os.system", "os.popen", "os.startfile", "pickle.loads", "pickle.load"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "torch.hub.load"),
}
NEEDED = {"torch.load": ("weights_only", True)}
NEVER = {"shell": True, "allow_pickle": True}
NATIVE = re.compile(
    r"\b(system|popen|exec[lv]p?e?|dlopen|gets|strcpy|strcat|v?sprintf|alloca|tmpnam|mktemp)\s*\("
)

TURBO = "#include <stdio.h>\n#include <jpeglib.h>\n#ifndef LIBJPEG_TURBO_VERSION\n#error\n#endif\n"


def main() -> int:
    """Report on stderr, print the state on stdout, return the exit code."""
    stops = [] if has_venv() else ["venv"]
    core = missing_for_core()
    if stops or core:
        say(f"Missing: {', '.join(stops + core)}. To add it: {install_line(stops + core)}")
    if stops:
        say("Without venv nothing can be installed.")
        return 1
    if core:
        say("Going on without the native core: OpenCV decodes, and packing probes in Python.")
    executable = os.path.realpath(sys.executable)
    print(executable, platform.python_version(), "with core" if not core else "without core")
    return 0


def check_calls(root: Path) -> int:
    """Name each refused call below ``root`` on stderr; return the exit code."""
    found = [
        f"{path.relative_to(root)}:{line}: {what}"
        for folder in CHECKED
        for path in sorted((root / folder).rglob("*"))
        for line, what in refused_calls(path)
    ]
    for text in found:
        say(f"{text}: nothing may run code from data, a shell, or an archive's own paths")
    return 1 if found else 0


def refused_calls(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each refused call in a source file; in other files there is none."""
    if path.suffix in {".cpp", ".h"}:
        code = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.split("\n"), 1):
            yield from ((number, match[0]) for match in NATIVE.finditer(line))
    elif path.suffix in {".py", ".pyi"}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield from ((node.lineno, what) for what in refused(node))


def refused(node: ast.AST) -> Iterator[str]:
    """Yield what is refused of one node of a syntax tree."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    elif isinstance(node, ast.Name | ast.Attribute):
        names = [ast.unparse(node)]
    else:
        names = []
    imported = isinstance(node, ast.Import | ast.ImportFrom)
    yield from (name for name in names if name in QUALIFIED)
    yield from (name for name in names if imported and name.partition(".")[0] in MODULES)
    if isinstance(node, ast.Call):
        yield from refused_call(node)


def refused_call(call: ast.Call) -> Iterator[str]:
    """Yield what is refused of one call."""
    function = ast.unparse(call.func)
    arguments = {word.arg: word.value for word in call.keywords}
    if isinstance(call.func, ast.Name) and function in NAMES:
        yield function
    if isinstance(call.func, ast.Attribute) and call.func.attr in ATTRIBUTES:
        yield f".{call.func.attr}"
    for name, value in NEVER.items():
        given = arguments.get(name)
        # Anything but a plain False could come to be true.
        if given is not None and not (isinstance(given, ast.Constant) and given.value is not value):
            yield f"{function}({name}=...)"
    if function in NEEDED:
        name, value = NEEDED[function]
        given = arguments.get(name)
        if not (isinstance(given, ast.Constant) and given.value is value):
            yield f"{function} without {name}={value}"


def say(text: str) -> None:
    """Tell the person at the terminal."""
    print(f"preflight: {text}", file=sys.stderr)


def has_venv() -> bool:
    """Tell whether `python -m venv` works: Debian ships venv and ensurepip apart from Python."""
    return all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))


def missing_for_core() -> list[str]:
    """Return what keeps the native core from being built; empty if nothing does."""
    missing = []
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None or shutil.which(compiler.split()[0]) is None:
        missing.append("C++ compiler")
        compiler = None
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        missing.append("Python.h")
    if needs_system_jpeg() and not has_libjpeg_turbo(compiler):
        missing.append("libjpeg-turbo")
    return missing


def needs_system_jpeg() -> bool:
    """Tell whether no wheel brings libjpeg-turbo for this interpreter."""
    here = (platform.system(), platform.machine())
    return sys.version_info < BUNDLED_JPEG or here not in BUNDLED_JPEG_ON


def has_libjpeg_turbo(compiler: str | None) -> bool:
    """Tell whether the header is libjpeg-turbo's and the library links."""
    if compiler is None:  # the compiler would know where to look; these are the usual places
        places = ("/usr/include", "/usr/local/include", "/opt/homebrew/include")
        return any(Path(place, "jpeglib.h").exists() for place in places)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "jpeg.cpp")
        source.write_text(TURBO + "int main() { jpeg_error_mgr e; return !jpeg_std_error(&e); }\n")
        command = [*compiler.split(), str(source), "-ljpeg", "-o", str(Path(folder, "jpeg"))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install_line(missing: list[str]) -> str:
    """Return the one command that installs everything in ``missing`` with the system's packages."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if shutil.which("apt-get"):
        packages = {
            "venv": f"python{version}-venv",
            "C++ compiler": "g++",
            "Python.h": f"python{version}-dev",
            "libjpeg-turbo": "libjpeg-dev",
        }
        command = "apt-get install -y"
    elif shutil.which("dnf"):
        packages = {
            "venv": "python3",
            "C++ compiler": "gcc-c++",
            "Python.h": f"python{version}-devel",
            "libjpeg-turbo": "libjpeg-turbo-devel",
        }
        command = "dnf install -y"
    else:
        return "use your system's packages"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}{command} {' '.join(packages[name] for name in missing)}"


if __name__ == "__main__":
    sys.exit(check_calls(ROOT) if sys.argv[1:] == ["--calls"] else main())
