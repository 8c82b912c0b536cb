"""Check what `make` needs before it installs anything, and name the one command that adds the rest.

Run as `PYTHON tools/preflight.py` by the Makefile, with the interpreter that .venv is to have. What
a person should know goes to stderr. Stdout gets one line on the interpreter and on whether the
native core can be built: when that line changes, the Makefile makes .venv anew. That Python is 3.11
or later was checked there, because an older one cannot even compile this file.

Exit codes: 0 go on (without the native core if need be), 1 impossible.
"""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

BUNDLED_JPEG = (3, 12)  # from here on the build dependency comma-deps-libjpeg brings libjpeg-turbo
BUNDLED_JPEG_ON = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")}

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
    sys.exit(main())
