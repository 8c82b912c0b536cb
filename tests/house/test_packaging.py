"""What gets installed: one top-level package, whole, whether or not it can be compiled."""

import os
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from places import ROOT

import fastdata

LINKS = ("converters", "loaders")


@pytest.mark.parametrize("name", LINKS)
def test_root_folders_are_linked_into_the_package(name: str) -> None:
    """fastdata/converters and fastdata/loaders are relative links to the folders at the root."""
    link = ROOT / "fastdata" / name

    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert link.resolve() == ROOT / name


def test_version_is_the_installed_one() -> None:
    """`fastdata.__version__` is the version in pyproject.toml."""
    assert fastdata.__version__ == metadata.version("fastdata")


def _run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and with the wheel that was built from the sdist."""
    pytest.importorskip("build", reason="`make check` installs it")
    out = tmp_path_factory.mktemp("dist")
    built = _run(sys.executable, "-m", "build", "--outdir", out, cwd=ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the source tree, links kept, to be broken by a test."""
    copy = tmp_path / "source"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.name in {"fastdata", *LINKS, "csrc"}:
            shutil.copytree(path, copy / path.name, symlinks=True)
        elif path.is_file():
            shutil.copy(path, copy)
    return copy


def _package_files() -> set[str]:
    """Return what a wheel must hold of the package besides the native core."""
    names = {"fastdata/py.typed", "fastdata/_core.pyi"}
    for folder, _, files in os.walk(ROOT / "fastdata", followlinks=True):
        paths = (Path(folder, name) for name in files if name.endswith(".py"))
        names |= {path.relative_to(ROOT).as_posix() for path in paths}
    return names


def _wheel_files(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert len(names) == len(set(names))
    return {name for name in names if ".dist-info/" not in name}


@pytest.mark.check
@pytest.mark.timeout(600)
class TestDistributions:
    """What is built, for real, with pip's isolated builds."""

    def test_wheel_holds_the_whole_package_and_nothing_else(self, dist: Path) -> None:
        """A wheel has every module once, the native core, and no other top-level name."""
        (wheel,) = dist.glob("*.whl")
        native = {name for name in _wheel_files(wheel) if name.startswith("fastdata/_core.")}

        assert _wheel_files(wheel) - native == _package_files() - native
        assert any(name.endswith(".so") for name in native)

        checked = _run(sys.executable, "-m", "check_wheel_contents", wheel, cwd=ROOT)
        assert checked.returncode == 0, checked.stdout + checked.stderr

    def test_sdist_holds_one_copy_of_everything(self, dist: Path) -> None:
        """An sdist has the linked folders inside the package and not at the root as well."""
        (sdist,) = dist.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            members = [member.name.partition("/")[2] for member in archive if member.isfile()]

        assert len(members) == len(set(members))
        assert _package_files() <= set(members)
        assert not [name for name in members if name.startswith(("converters/", "loaders/"))]
        assert not [name for name in members if name.startswith(("build/", ".venv/"))]

    def test_without_a_compiler_the_package_installs_whole(
        self, source: Path, tmp_path: Path
    ) -> None:
        """Where nothing can be compiled the wheel is pure Python, with every module."""
        command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, source)
        built = _run(*command, cwd=tmp_path, CXX="/bin/false", CC="/bin/false")
        assert built.returncode == 0, built.stdout + built.stderr
        (wheel,) = tmp_path.glob("*.whl")

        assert wheel.name.endswith("-py3-none-any.whl")
        assert _wheel_files(wheel) == _package_files()

    @pytest.mark.parametrize("name", LINKS)
    def test_links_that_git_made_files_of_stop_the_build(
        self, source: Path, tmp_path: Path, name: str
    ) -> None:
        """A checkout without links never becomes a wheel that lacks a folder."""
        link = source / "fastdata" / name
        link.unlink()
        link.write_text(f"../{name}")
        command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, source)
        built = _run(*command, cwd=tmp_path)

        assert built.returncode != 0
        assert f"fastdata/{name} is not a folder" in built.stdout + built.stderr
        assert not list(tmp_path.glob("*.whl"))
