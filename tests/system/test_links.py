"""Names planted in a folder that was downloaded: what they lead to stays as it is."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from packing import content, interrupted_after, twenty

from fastdata.converters import pack_run
from fastdata.converters.check.index import index
from fastdata.converters.check.repair import repair
from fastdata.converters.check.verify import verify
from fastdata.converters.pack import pack
from fastdata.errors import DestinationError, FastdataError
from fastdata.loaders import export as export_module
from fastdata.loaders.export import export
from fastdata.loaders.readers.packed import PackedSource, open_source

SIZE = 35_000
LESS = 15_000
PRECIOUS = b"alias ls=ls\n" * 3


def with_temporaries(*names: str) -> list[str]:
    """The names, and those under which they are written."""
    return [*names, *(f"{name}.tmp" for name in names)]


SHARDS = [
    ".pack.lock",
    *with_temporaries("shard-000000.tar", "shard-000000.idx", "catalog.fdc", "dataset.json"),
    *with_temporaries("skipped.jsonl", ".pack.journal"),
]
INDEX = [
    ".pack.lock",
    *with_temporaries("train-0.idx", "catalog.fdc", "dataset.json", "skipped.jsonl"),
    *with_temporaries(".pack.journal"),
]
LMDB = [
    "one.lmdb.lock",
    *with_temporaries("one.lmdb", "one.lmdb.journal", "one.lmdb.skipped.jsonl"),
]
EXPORT = [".export.lock", ".export.tmp", *with_temporaries(".export.json"), "a", "a/0.jpg"]

PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda name, outside: name.symlink_to(outside / "bashrc"),
    "dangling link": lambda name, outside: name.symlink_to(outside / "new"),
    "link to a folder": lambda name, outside: name.symlink_to(outside),
    "hard link": lambda name, outside: os.link(outside / "bashrc", name),
    "FIFO": lambda name, _: os.mkfifo(name),
    "folder": lambda name, _: name.mkdir(),
}
EACH = pytest.mark.parametrize("what", PLANTS)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is packed: two classes, and a file to be left out."""
    return twenty(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def packed(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards, an LMDB file, and a folder with a tar of another name."""
    folder = tmp_path_factory.mktemp("packed")
    pack(pictures, folder / "shards", shard_size=SIZE)
    pack(pictures, folder / "lmdb/one.lmdb", shard_size=SIZE)
    (folder / "foreign").mkdir()
    with tarfile.open(folder / "foreign/train-0.tar", "w") as file:
        for name in ("a/0.jpg", "a/2.jpg", "a/bad.jpg"):
            file.add(pictures / name, name)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that must stay as it is, whatever a test does."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "bashrc").write_bytes(PRECIOUS)
    yield folder
    assert content(folder) == {"bashrc": PRECIOUS}


def plant(what: str, name: Path, outside: Path) -> None:
    """Put something in the place of a file."""
    if name.is_dir():
        shutil.rmtree(name)
    name.parent.mkdir(exist_ok=True)
    name.unlink(missing_ok=True)
    PLANTS[what](name, outside)


def attack(
    what: str,
    names: list[str],
    folders: Callable[[int], Path],
    outside: Path,
    command: Callable[[Path], object],
) -> list[str]:
    """Plant each name in a folder of its own and run a command; return where it succeeds.

    It may fail, with an error of ours that names the folder, and then the name is still there.
    """
    succeeded = []
    for number, name in enumerate(names):
        folder = folders(number)
        plant(what, folder / name, outside)
        if error := failure(command, folder):
            assert str(folder) in error
            assert os.path.lexists(folder / name)
        else:
            succeeded.append(name)
    return succeeded


def failure(command: Callable[[Path], object], folder: Path) -> str:
    """The error of ours that a command ends with, or nothing."""
    try:
        command(folder)
    except FastdataError as error:
        return str(error)
    return ""


def copies(folder: Path, tmp_path: Path) -> Callable[[int], Path]:
    """Copies of a folder by number."""
    return lambda number: Path(shutil.copytree(folder, tmp_path / f"{number}"))


@EACH
def test_index_writes_through_no_name(
    packed: Path, outside: Path, tmp_path: Path, what: str
) -> None:
    """Temporary names are replaced; a name that holds something is refused."""
    folders = copies(packed / "foreign", tmp_path)

    succeeded = attack(what, INDEX, folders, outside, index)

    temporaries = [name for name in INDEX if name.endswith(".tmp")]
    assert succeeded == ([".pack.journal.tmp"] if what == "folder" else temporaries)


@EACH
def test_index_with_overwrite_writes_through_no_name(
    packed: Path, outside: Path, tmp_path: Path, what: str
) -> None:
    """All but a lock and folders are replaced by the files of the data set."""
    folders = copies(packed / "foreign", tmp_path)

    succeeded = attack(what, INDEX, folders, outside, lambda at: index(at, overwrite=True))

    assert what == "folder" or succeeded == INDEX[1:]
    for number, name in enumerate(INDEX):
        if name in succeeded and not name.startswith("."):
            assert not (tmp_path / f"{number}" / name).is_symlink()


@EACH
@pytest.mark.parametrize("overwrite", [False, True])
def test_pack_writes_through_no_name(
    pictures: Path, outside: Path, tmp_path: Path, what: str, *, overwrite: bool
) -> None:
    """Shards and LMDB files that get packed all the same are whole and hold no link."""

    def empty(number: int) -> Path:
        (tmp_path / f"{number}").mkdir()
        return tmp_path / f"{number}"

    def command(folder: Path) -> None:
        lmdb = any(name.name.startswith("one.lmdb") for name in folder.iterdir())
        out = folder / "one.lmdb" if lmdb else folder
        pack(pictures, out, shard_size=SIZE, overwrite=overwrite)
        assert verify(out).problems == ()
        assert not any(file.is_symlink() for file in folder.iterdir())

    succeeded = attack(what, SHARDS + LMDB, empty, outside, command)

    if what != "folder":
        assert {name for name in SHARDS + LMDB if name.endswith(".tmp")} <= set(succeeded)
        assert (".pack.journal" in succeeded) == overwrite


@EACH
def test_repair_writes_through_no_name(
    pictures: Path, packed: Path, outside: Path, tmp_path: Path, what: str
) -> None:
    """Shards and LMDB files that are damaged are written anew, beside whatever was planted."""

    def damaged(number: int) -> Path:
        folder = tmp_path / f"{number}"
        shutil.copytree(packed / "shards", folder)
        shutil.copytree(packed / "lmdb", folder, dirs_exist_ok=True)
        for name in ("shard-000001.tar", "one.lmdb"):
            data = bytearray((folder / name).read_bytes())
            data[100] ^= 1
            (folder / name).write_bytes(data)
        return folder

    names = [name for name in SHARDS if name != "dataset.json"]
    attack(what, names, damaged, outside, lambda folder: repair(folder, pictures))
    shutil.rmtree(tmp_path / "0")
    for number in range(1, len(names)):
        shutil.rmtree(tmp_path / f"{number}")
    attack(what, LMDB[:1] + LMDB[2:], damaged, outside, lambda at: repair(at / "one.lmdb"))


@EACH
def test_export_writes_through_no_name(
    packed: Path, outside: Path, tmp_path: Path, what: str
) -> None:
    """Nor do exports that are resumed: a folder of a class may be a link as well."""
    with closing(open_source(packed / "shards")) as source:
        assert isinstance(source, PackedSource)
        mark = export_module._mark(source)

    def begun(number: int) -> Path:
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / ".export.json").write_bytes(mark)
        return folder

    succeeded = attack(
        what, EXPORT, begun, outside, lambda folder: export(packed / "shards", folder)
    )

    if what != "folder":
        assert succeeded == [".export.tmp", ".export.json.tmp", "a/0.jpg"]


@EACH
def test_nothing_is_read_that_is_no_file(
    packed: Path, outside: Path, tmp_path: Path, what: str
) -> None:
    """A FIFO, a folder or something else in the place of a file is damage, not a wait."""

    def command(folder: Path) -> None:
        with closing(open_source(folder)) as source:
            for number in range(len(source)):
                source.read(number)

    names = ["shard-000000.tar", "shard-000000.idx", "catalog.fdc", "dataset.json"]
    folders = copies(packed / "shards", tmp_path)
    assert attack(what, names, folders, outside, command) == ["shard-000000.idx"]
    for number, name in enumerate(names):
        found = verify(tmp_path / f"{number}").problems
        assert name in {problem.file for problem in found}
        pack_again = lambda at: pack(at, tmp_path / "new", overwrite=True)  # noqa: E731
        assert bool(failure(pack_again, tmp_path / f"{number}")) != name.endswith(".idx")


def interrupted(source: Path, out: Path) -> None:
    """A pack that is stopped behind some whole shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack_run, "read_all", interrupted_after(18))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=LESS)


@pytest.mark.parametrize("make", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["one.lmdb.tmp", "one.lmdb.journal"])
def test_a_resumed_pack_writes_into_no_file_with_another_name(
    pictures: Path, tmp_path: Path, make: Callable[[Path, Path], None], name: str
) -> None:
    """What an interrupted pack left may be a link by now; what that leads to stays as it is."""
    interrupted(pictures, tmp_path / "one.lmdb")
    moved = tmp_path / "moved"
    (tmp_path / name).rename(moved)
    before = moved.read_bytes()
    make(moved, tmp_path / name)

    if name.endswith("journal") and make is os.symlink:
        with pytest.raises(DestinationError, match="journal: a symbolic link"):
            pack(pictures, tmp_path / "one.lmdb", shard_size=LESS)
        (tmp_path / name).unlink()
    report = pack(pictures, tmp_path / "one.lmdb", shard_size=LESS)

    assert moved.read_bytes() == before
    assert (report.resumed > 0) == (name.endswith("journal") and make is os.link)
    pack(pictures, tmp_path / "fresh.lmdb", shard_size=LESS)
    assert (tmp_path / "one.lmdb").read_bytes() == (tmp_path / "fresh.lmdb").read_bytes()


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_resumed_pack_takes_over_no_shard_with_another_name(
    pictures: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    """A shard that is a link is packed again."""
    interrupted(pictures, tmp_path / "shards")
    moved = tmp_path / "moved"
    (tmp_path / "shards/shard-000000.tar").rename(moved)
    make(moved, tmp_path / "shards/shard-000000.tar")

    assert pack(pictures, tmp_path / "shards", shard_size=LESS).resumed == 0

    pack(pictures, tmp_path / "fresh", shard_size=LESS)
    assert content(tmp_path / "shards") == content(tmp_path / "fresh")
    assert not (tmp_path / "shards/shard-000000.tar").is_symlink()


def test_a_split_goes_into_no_folder_that_is_a_link(
    pictures: Path, outside: Path, tmp_path: Path
) -> None:
    """Of the folders of a split the user names only the one above."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/val").symlink_to(outside / "new")

    with pytest.raises(DestinationError, match="val: a symbolic link"):
        pack(pictures, tmp_path / "out", split="train=0.5,val=0.5")


def test_a_data_set_of_links_is_read(packed: Path, tmp_path: Path) -> None:
    """Caches of downloads hold links to their files: such a folder loads, verifies and packs."""
    for file in (packed / "shards").iterdir():
        (tmp_path / file.name).symlink_to(file)

    assert verify(tmp_path).problems == ()
    assert pack(tmp_path, tmp_path.with_name("again")).samples == 20


CLOSED = """
import os, sys
os.dup2(os.open("/dev/null", os.O_RDWR), 9)
sys.stdout = sys.stderr = os.fdopen(9, "w")
for fd in (0, 1, 2):
    os.close(fd)
from fastdata.converters.pack_run import PackRun
from fastdata.converters.pack import pack
from fastdata.system.files import create
from pathlib import Path
finish = PackRun._finish
def noisy(run, writer):
    for fd in (0, 1, 2):
        try:
            os.write(fd, b"libpng warning: something\\n")
        except OSError:
            pass  # closed, or open to read
    return finish(run, writer)
PackRun._finish = noisy
fd = create(Path(sys.argv[2]))
os._exit(3) if fd < 3 else os.close(fd)
pack(sys.argv[1], sys.argv[3], shard_size=35000)
pack(sys.argv[1], sys.argv[4], shard_size=35000)
"""


def test_no_file_is_written_under_a_standard_stream(
    pictures: Path, packed: Path, tmp_path: Path
) -> None:
    """With streams 0 to 2 closed, what libraries print does not get into a data set."""
    arguments = [pictures, tmp_path / "file", tmp_path / "one.lmdb", tmp_path / "shards"]

    result = subprocess.run([sys.executable, "-c", CLOSED, *map(str, arguments)], check=False)

    assert result.returncode == 0
    assert (tmp_path / "one.lmdb").read_bytes() == (packed / "lmdb/one.lmdb").read_bytes()
    assert content(tmp_path / "shards") == content(packed / "shards")


@pytest.mark.parametrize("form", ["packed", "images"])
def test_the_ladder_goes_into_no_linked_folder(
    pictures: Path, packed: Path, outside: Path, tmp_path: Path, form: str
) -> None:
    """Its folder may lie beside a download, with a link in the place of what it makes there."""
    from fastdata.bench.forms import both_forms

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / form).symlink_to(outside / "new")
    source = pictures if form == "packed" else packed / "shards"
    with pytest.raises(DestinationError, match="symbolic link"):
        both_forms(source, tmp_path / "work", batch_size=1, tell=lambda *_: None)
