"""What is there already is finished, replaced or refused, never mixed up."""

import subprocess
import sys
from pathlib import Path

import lmdb
import pytest
from packing import KINDS, content, interrupted_after, originals, picture

from fastdata.converters import pack_run
from fastdata.converters.pack import pack
from fastdata.converters.pack_run import destination
from fastdata.dataset import manifest
from fastdata.errors import (
    BusyError,
    CorruptError,
    DestinationError,
    ManifestError,
    ShardError,
)

HOLD = """
import sys, time
from pathlib import Path
from fastdata.system.files import Lock
with Lock(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""


@KINDS
def test_the_same_pack_again_writes_nothing(source: Path, tmp_path: Path, name: str) -> None:
    """It says that all is done; workers and spelling of the size make no difference."""
    first = pack(source, tmp_path / name, shard_size="5kB")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    again = pack(source, tmp_path / name, shard_size=5000, workers=1)

    assert (first.already_complete, again.already_complete) == (False, True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert (again.samples, again.bytes, again.shards) == (12, first.bytes, first.shards)


@KINDS
def test_another_pack_needs_overwrite(source: Path, tmp_path: Path, name: str) -> None:
    """Other options or a changed source are an error that names the way out."""
    pack(source, tmp_path / name, shard_size=2000)
    before = content(tmp_path / name)
    with pytest.raises(DestinationError, match=r"was packed with other options: .*--overwrite"):
        pack(source, tmp_path / name, seed=1)
    (source / "ant/new.jpg").write_bytes(picture(9))
    with pytest.raises(DestinationError, match=r"source has changed; use --overwrite"):
        pack(source, tmp_path / name, shard_size=2000)
    assert content(tmp_path / name) == before

    assert pack(source, tmp_path / name, overwrite=True).samples == 13

    fresh = tmp_path / f"fresh-{name}"
    pack(source, fresh)
    assert sorted(content(tmp_path / name).values()) == sorted(content(fresh).values())


def test_overwrite_takes_the_old_manifest_first(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is half overwritten is never taken for a whole data set."""
    out = tmp_path / "out"
    pack(source, out, shard_size=5000)
    monkeypatch.setattr(pack_run, "read_all", interrupted_after(5))

    with pytest.raises(KeyboardInterrupt):
        pack(source, out, shard_size=5000, seed=1, overwrite=True)

    with pytest.raises(ManifestError, match="unfinished pack"):
        manifest.load(out)


@KINDS
def test_a_damaged_data_set_is_told_and_can_be_replaced(
    source: Path, tmp_path: Path, name: str
) -> None:
    """Damage is an error of its own kind; with overwrite it does not stand in the way."""
    out = tmp_path / name
    pack(source, out)
    good = content(out)
    damaged = out / "dataset.json" if out.is_dir() else out
    damaged.write_bytes(damaged.read_bytes()[:-100])

    with pytest.raises(CorruptError):
        pack(source, out)
    pack(source, out, overwrite=True)

    assert content(out) == good


def test_a_missing_or_cut_shard_is_told(source: Path, tmp_path: Path) -> None:
    """'Already complete' is only said of a data set whose files have the sizes they should."""
    pack(source, tmp_path / "out", shard_size=5000)
    shard = tmp_path / "out/shard-000001.tar"
    shard.write_bytes(shard.read_bytes()[:-512])
    with pytest.raises(ShardError, match=r"shard-000001.tar: .* the manifest states"):
        pack(source, tmp_path / "out", shard_size=5000)
    shard.unlink()
    with pytest.raises(ShardError, match=r"shard-000001.tar: missing"):
        pack(source, tmp_path / "out", shard_size=5000)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_ours_stays(source: Path, tmp_path: Path, overwrite: bool) -> None:
    """A file, a folder with anything else in it, and others' data are refused, untouched."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/thesis.tex").write_text("mine")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/shard-000000.tar").write_text("webdataset's")
    (tmp_path / "json").mkdir()
    (tmp_path / "json/dataset.json").write_text('{"mine": 1}')
    (tmp_path / "text.lmdb").write_text("mine")
    (tmp_path / "folder.lmdb").mkdir()
    with lmdb.open(str(tmp_path / "other.lmdb"), subdir=False, lock=False) as env:
        env.begin(write=True).commit()
    before = originals(tmp_path)

    names = ("file", "folder", "shards", "json", "text.lmdb", "folder.lmdb", "other.lmdb")
    for name in names:
        with pytest.raises(DestinationError, match=name):
            pack(source, tmp_path / name, overwrite=overwrite)

    assert originals(tmp_path) == before


def test_the_destination_lies_outside_of_the_source(source: Path, tmp_path: Path) -> None:
    """Else the next pack would take it for a class; links do not hide it."""
    (tmp_path / "link").symlink_to(source)
    for place in (source, source / "out", source / "out.lmdb", tmp_path / "link/ant/out"):
        with pytest.raises(DestinationError, match="inside the source"):
            pack(source, place)


def test_a_link_to_a_folder_is_followed(source: Path, tmp_path: Path) -> None:
    """The data set lies where the link leads, and the link stays."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")

    pack(source, tmp_path / "link")

    assert (tmp_path / "disk/dataset.json").exists()
    assert (tmp_path / "link").is_symlink()


def test_a_link_in_place_of_a_file_is_neither_followed_nor_replaced(
    source: Path, tmp_path: Path
) -> None:
    """An LMDB file is not written where a link leads; one that is there already is found by it."""
    (tmp_path / "link.lmdb").symlink_to(tmp_path / "disk.lmdb")

    with pytest.raises(DestinationError, match=r"link\.lmdb: a symbolic link"):
        pack(source, tmp_path / "link.lmdb")
    assert not (tmp_path / "disk.lmdb").exists()

    pack(source, tmp_path / "disk.lmdb")
    assert pack(source, tmp_path / "link.lmdb").already_complete
    with pytest.raises(DestinationError, match="give its target"):
        pack(source, tmp_path / "link.lmdb", overwrite=True)


@KINDS
def test_two_packs_at_once(source: Path, tmp_path: Path, name: str) -> None:
    """The second is refused while the first lives, and may go on once it is dead."""
    place = destination(tmp_path / name)
    place.create()
    command = [sys.executable, "-c", HOLD, str(place.lock_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(BusyError, match=rf"process {child.pid}"):
            pack(source, tmp_path / name)
        child.kill()
    assert place.lock_path.exists()

    assert pack(source, tmp_path / name).samples == 12
    assert not place.lock_path.exists()


@pytest.mark.parametrize(
    "name",
    [
        "new/skipped.jsonl",
        "new/catalog.fdc",
        "new/shard-000000.idx",
        "new/.pack.lock",
        "new.lmdb.skipped.jsonl",
        "new.lmdb.lock",
    ],
)
def test_files_of_others_stay(source: Path, tmp_path: Path, name: str) -> None:
    """A file with a name that packs use is kept where no pack of ours is known to have made it."""
    theirs = tmp_path / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("somebody's")
    target = tmp_path / ("new" if name.startswith("new/") else "new.lmdb")
    with pytest.raises(DestinationError, match=theirs.name):
        pack(source, target)
    assert theirs.read_text() == "somebody's"


def test_the_report_of_an_lmdb_that_was_removed_is_replaced(source: Path, tmp_path: Path) -> None:
    """A list of what was left out is known to be ours; packing again needs no --overwrite."""
    (source / "ant/bad.jpg").write_bytes(b"no image")
    pack(source, tmp_path / "new.lmdb")
    (tmp_path / "new.lmdb").unlink()
    assert (tmp_path / "new.lmdb.skipped.jsonl").exists()

    assert pack(source, tmp_path / "new.lmdb").samples == 12
