"""Reading an LMDB file page by page finds what the lmdb module finds, and tells what is ours."""

import gc
import os
import sys
import threading
from pathlib import Path

import lmdb
import numpy as np
import pytest
from lmdb_files import BORDERS, NOTHING, manifest, read, sizes, write

from fastdata.dataset.lmdb.file import check_seal, open_file, read_manifest
from fastdata.dataset.lmdb.format import sample_key
from fastdata.errors import ManifestError, NotADatasetError, ShardError


def test_values_are_lmdbs(tmp_path: Path) -> None:
    """Every value by its key, and all in their order, in trees of one level to three."""
    for seed, count in enumerate([0, 1, 10, 150, 1500]):
        path = tmp_path / f"{count}.lmdb"
        write(path, sizes(seed, count), group=200_000)
        entries = read(path)
        file = open_file(path)

        assert {key: file.get(key) for key in entries} == entries
        assert [key for key, _ in file.walk()] == list(entries)
        assert {key: file.read(*place) for key, place in file.walk()} == entries
        for key in (b"", b"\0", sample_key(count), b"fastdata", b"fastdata:z", b"\xff" * 40):
            assert file.get(key) is None
        assert (file.entries, file.size) == (len(entries), path.stat().st_size)
        check_seal(path)


def test_an_lmdb_changed_by_others_is_refused(tmp_path: Path) -> None:
    """After another program's transaction nothing that we stated of the file holds."""
    path = tmp_path / "a.lmdb"
    write(path, BORDERS)
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 24, lock=False) as env,
        env.begin(write=True) as txn,
    ):
        assert txn.delete(sample_key(3))
    with pytest.raises(ShardError, match="changed by another program"):
        open_file(path)


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    """Truncated anywhere, to nothing too, or extended, it is damaged, whoever asks."""
    path = tmp_path / "a.lmdb"
    groups = write(path, [3000] * 20)
    good = path.read_bytes()
    assert read_manifest(open_file(path)).shards == groups

    for length in (*range(30), *range(30, len(good), 1023), len(good) - 1, 8192):
        path.write_bytes(good[:length])
        with pytest.raises(ShardError, match=f"{length} bytes"):
            open_file(path)
    for more in (b"\0", b"\0" * 4096, good[-64:], good):
        path.write_bytes(good + more)
        with pytest.raises(ShardError, match=f"{len(good + more)} bytes"):
            open_file(path)


def test_the_seal_covers_what_groups_do_not(tmp_path: Path) -> None:
    """Any changed byte outside the groups is found, of the first pages and the trailer at once."""
    path = tmp_path / "a.lmdb"
    groups = write(path, [3000] * 20)
    good = path.read_bytes()
    end = 8192 + sum(group.bytes for group in groups)
    ends = [*range(160), *range(160, 8192, 61), *range(len(good) - 64, len(good))]
    for at in (*ends, *range(end, len(good) - 64, 61)):
        data = bytearray(good)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        with pytest.raises(ShardError):
            check_seal(path)
        if at in ends:
            with pytest.raises(ShardError):
                open_file(path)


def test_other_files_are_no_data_sets(tmp_path: Path) -> None:
    """Nothing, folders, FIFOs, texts, others' LMDBs, unfinished packs each get their own words."""
    path = tmp_path / "a.lmdb"
    with pytest.raises(NotADatasetError, match="no such"):
        open_file(path)
    with pytest.raises(NotADatasetError, match="not a regular file"):
        open_file(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NotADatasetError, match="not a regular file"):
        open_file(tmp_path / "fifo")
    for text in (b"text", b"text" * 10_000):
        path.write_bytes(text)
        with pytest.raises(NotADatasetError, match="not an LMDB"):
            open_file(path)
    path.unlink()
    with lmdb.open(str(path), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    with pytest.raises(NotADatasetError, match="not one that fastdata packed"):
        open_file(path)
    path.rename(tmp_path / "b.lmdb.tmp")
    with pytest.raises(ManifestError, match="unfinished"):
        open_file(tmp_path / "b.lmdb")


def test_the_manifest_is_of_this_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest whose groups do not end where the file's do is another file's."""
    groups = write(tmp_path / "a.lmdb", [3000] * 20)
    monkeypatch.setattr("lmdb_files.manifest", lambda _, __: manifest(groups, NOTHING))
    write(tmp_path / "b.lmdb", [3000] * 30)
    with pytest.raises(ManifestError, match="another data set"):
        read_manifest(open_file(tmp_path / "b.lmdb"))


def test_a_closed_file_opens_again(tmp_path: Path) -> None:
    """A read after close() opens the file anew, and refuses another one under its name."""
    path = tmp_path / "a.lmdb"
    write(path, BORDERS)
    file = open_file(path)
    value = file.get(sample_key(5))
    file.close()
    file.close()
    assert file.get(sample_key(5)) == value

    write(tmp_path / "b.lmdb", [*BORDERS, 1])
    os.replace(tmp_path / "b.lmdb", path)
    assert file.get(sample_key(5)) == value  # what was open stays
    file.close()
    with pytest.raises(ShardError, match="replaced"):
        file.get(sample_key(5))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """A file closes with its last reference, and where opening fails."""
    path = tmp_path / "a.lmdb"
    write(path, BORDERS)
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        open_file(path).get(sample_key(0))
        check_seal(path)
    os.truncate(path, 5000)
    with pytest.raises(ShardError):
        open_file(path)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_and_children_read_alike(tmp_path: Path) -> None:
    """One open file serves many threads, and a child that was forked while they read."""
    path = tmp_path / "a.lmdb"
    write(path, sizes(0, 200))
    entries = read(path)
    file = open_file(path)
    wrong: list[bytes] = []

    def check(seed: int) -> None:
        keys = list(entries)
        places = np.random.default_rng(seed).integers(0, len(keys), 300)
        wrong.extend(
            keys[place] for place in places if file.get(keys[place]) != entries[keys[place]]
        )

    threads = [threading.Thread(target=check, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        try:
            check(9)
        finally:
            os._exit(len(wrong) > 0 or sys.exc_info()[0] is not None)
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert not wrong
