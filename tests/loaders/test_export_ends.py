"""An export that is stopped, refused or finds damage: it resumes, and touches nothing else."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing import originals

from fastdata.errors import BusyError, DestinationError, NotADatasetError, SampleError
from fastdata.loaders.export import export
from fastdata.loaders.readers.packed import open_source
from fastdata.system.files import Lock


def _failing_at(count: int, error: BaseException) -> Any:
    """An ``os.replace`` that fails at one call."""
    calls = iter(range(10**6))

    def replace(src: Any, dst: Any, **folders: int) -> None:
        if next(calls) == count:
            raise error
        os.rename(src, dst, **folders)

    return replace


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_an_interrupted_export_goes_on(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Stopped at any file, several times over, it ends as if it had never been stopped."""
    export(shards, tmp_path / "whole")
    expected: type[BaseException] = (
        DestinationError if isinstance(error, OSError) else KeyboardInterrupt
    )
    for stop in (0, 1, 2, 10, 6, 8):  # the first call is the mark's, the others are files'
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", _failing_at(stop, error))
            with pytest.raises(expected):
                export(shards, tmp_path / "out")

    report = export(shards, tmp_path / "out")

    assert report.resumed == 22
    assert originals(tmp_path / "out") == originals(tmp_path / "whole")


def test_a_killed_export_goes_on(shards: Path, tmp_path: Path) -> None:
    """A process that dies leaves whole files, a lock that is free, and all that is needed."""
    code = (
        "import os, sys\nfrom fastdata.loaders.export import export\n"
        "export(*sys.argv[1:], progress=lambda _, done, __: done == 7 and os._exit(9))"
    )
    arguments = [sys.executable, "-P", "-c", code, str(shards), str(tmp_path / "out")]
    assert subprocess.run(arguments, check=False, timeout=240).returncode == 9
    left = originals(tmp_path / "out")
    (victim, *_) = (name for name in left if name.endswith(".jpg"))
    (tmp_path / "out" / victim).write_bytes(left[victim][:-1])  # as a power cut would

    report = export(shards, tmp_path / "out")

    assert report.resumed == 6
    assert len(originals(tmp_path / "out")) == 23
    assert (tmp_path / "out" / victim).read_bytes() == left[victim]


def _occupied(path: Path, shards: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("all of it")


def _other_export(path: Path, shards: Path) -> None:
    path.mkdir()
    (path / ".export.json").write_text('{"export": "another"}')


def _a_file(path: Path, shards: Path) -> None:
    path.write_text("all of it")


@pytest.mark.parametrize(
    ("make", "what"),
    [(_occupied, "not empty"), (_other_export, "another data set"), (_a_file, "Not a directory")],
)
def test_nothing_else_is_touched(shards: Path, tmp_path: Path, make: Any, what: str) -> None:
    """What is no unfinished export of this data set is refused and stays as it is."""
    make(tmp_path / "dst", shards)
    before = originals(tmp_path)

    with pytest.raises(DestinationError, match=what):
        export(shards, tmp_path / "dst")

    assert originals(tmp_path) == before


def test_a_finished_export_is_not_begun_again(shards: Path, tmp_path: Path) -> None:
    """A whole export is a folder like any other: not empty."""
    export(shards, tmp_path / "dst")

    with pytest.raises(DestinationError, match="not empty"):
        export(shards, tmp_path / "dst")


def test_one_process_at_a_time(shards: Path, tmp_path: Path) -> None:
    """A folder that another export writes to is refused."""
    (tmp_path / "dst").mkdir()
    with Lock(tmp_path / "dst/.export.lock", "dst"), pytest.raises(BusyError):
        export(shards, tmp_path / "dst")


def test_sources_and_places_that_make_no_sense(folder: Path, shards: Path, tmp_path: Path) -> None:
    """A plain folder has nothing to export, and no export goes into the data set itself."""
    with pytest.raises(NotADatasetError, match="folder of images"):
        export(folder, tmp_path / "dst")
    with pytest.raises(NotADatasetError, match="nowhere"):
        export(tmp_path / "nowhere", tmp_path / "dst")
    with pytest.raises(DestinationError, match="within the data set"):
        export(shards, shards / "inside")


@pytest.fixture
def damaged(shards: Path, tmp_path: Path) -> tuple[Path, str]:
    """A copy of the shards with one bit of an image changed, and the image's name."""
    shutil.copytree(shards, tmp_path / "damaged")
    source = open_source(shards)
    row, (name,) = source.rows(np.array([7]))[0], source.catalog.names([7])  # type: ignore[union-attr]
    source.close()
    with (tmp_path / f"damaged/shard-{row['shard']:06}.tar").open("r+b") as file:
        file.seek(int(row["offset"]) + 100)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return tmp_path / "damaged", name


def test_damage_is_not_exported(damaged: tuple[Path, str], tmp_path: Path) -> None:
    """A damaged image is an error that names it, and no file."""
    path, name = damaged

    with pytest.raises(SampleError, match=os.path.splitext(name)[0]):
        export(path, tmp_path / "dst")

    assert len([n for n in originals(tmp_path / "dst") if n.endswith(".jpg")]) == 7
    assert not (tmp_path / "dst" / name).exists()
