"""A full disk, a broken one, or too few files: one clear error, nothing lost, nothing half."""

import errno
import os
from itertools import count
from pathlib import Path

import pytest
from faults import Failure, Fault, install
from packing import KINDS, content, twenty
from strides import EVERY

from fastdata.converters.pack import pack
from fastdata.errors import DestinationError
from fastdata.system.files import Lock

SIZE = 35_000


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is packed."""
    return twenty(tmp_path_factory.mktemp("source"))


def files(folder: Path, name: str) -> dict[str, bytes]:
    """All files of a destination that lies alone in a folder."""
    place = folder / name if name == "shards" else folder
    return content(place) if place.exists() else {}


def fails(source: Path, out: Path, words: str) -> bool:
    """Whether a pack fails; if so, its error has these words and names the destination."""
    try:
        pack(source, out, shard_size=SIZE)
    except DestinationError as error:
        return (words in str(error) and str(out.parent) in str(error)) or pytest.fail(str(error))
    return False


@EVERY
@KINDS
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_an_error_at_any_call(
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    step: int,
) -> None:
    """It names the destination and the system's words; what stays is whole, or resumes to the bit.

    A disk or a table of files that is full stays so; an error of the disk comes once.
    """
    pack(pictures, tmp_path / "fresh" / name, shard_size=SIZE)
    whole = files(tmp_path / "fresh", name)
    failed = 0
    for at in count(1, step):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        fault = Failure(at, number)
        with monkeypatch.context() as patch:
            install(fault, folder, patch)
            failed += fails(pictures, folder / name, os.strerror(number))
        if fault.calls < at:
            break
        left = files(folder, name)
        assert not [file for file in left if file.endswith(".tar.tmp")]
        assert {file: data for file, data in left.items() if file in whole}.items() <= whole.items()

        pack(pictures, folder / name, shard_size=SIZE)

        assert files(folder, name) == whole, at
    assert failed > (20 if number == errno.EMFILE else 35) // step


@KINDS
def test_a_disk_that_is_full_from_the_start_stays_clean(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where no shard is whole yet, nothing stays at all, not even the folder."""
    for at in range(1, 20):
        with monkeypatch.context() as patch:
            install(Failure(at, errno.ENOSPC), tmp_path, patch)
            with pytest.raises(DestinationError, match="No space left"):
                pack(pictures, tmp_path / name)
        assert os.listdir(tmp_path) == [], at


def test_an_old_data_set_outlives_a_full_disk(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An LMDB that was to be replaced is as it was, and alone, where its successor failed."""
    out = tmp_path / "one.lmdb"
    pack(pictures, out, seed=1)
    before = content(tmp_path)
    counted = Fault()
    with monkeypatch.context() as patch:
        install(counted, tmp_path / "count", patch)
        pack(pictures, tmp_path / "count" / out.name)
    before_report = counted.calls - 20
    for at in range(2, before_report):
        with monkeypatch.context() as patch:
            install(Failure(at, errno.EIO), tmp_path, patch)
            with pytest.raises(DestinationError):
                pack(pictures, out, overwrite=True)
        assert {file.name: file.read_bytes() for file in tmp_path.glob("one*")} == before, at


def test_a_lock_that_cannot_be_removed_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one in this process takes it over."""
    lock = Lock(tmp_path / "it.lock", "it")
    with monkeypatch.context() as patch:
        install(Failure(4, errno.EIO), tmp_path, patch)
        with pytest.raises(OSError, match="Input/output error"), lock:
            pass

    with lock:
        assert (tmp_path / "it.lock").exists()
