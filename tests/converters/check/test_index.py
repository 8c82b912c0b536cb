"""An index made from tars alone, ours and others', against what pack and webdataset say of them."""

import errno
import io
import json
import re
import shutil
import tarfile
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import webdataset
from faults import Failure, install
from packing import content, picture

import fastdata
from fastdata.converters.check.index import NO_LABEL, index
from fastdata.converters.check.verify import verify
from fastdata.converters.pack import pack
from fastdata.dataset.manifest import load
from fastdata.errors import DestinationError, NotADatasetError, OptionError, ShardError
from fastdata.loaders.readers.packed import TarSource


def write_tar(path: Path, members: dict[str, bytes], kind: int = tarfile.GNU_FORMAT) -> None:
    """A tar by Python's tarfile, with a folder in it."""
    with tarfile.open(path, "w", format=kind) as file:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        file.addfile(folder)
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Two tars as people have them: long names, other extensions, captions, labels."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for shard in range(2):
        members = {}
        for number in range(5):
            key = f"{'deep' * 30}/{shard}{number}"
            members[f"{key}.txt"] = b"BM is how this caption begins"
            members[f"{key}.JPEG"] = picture(shard * 5 + number)
            members[f"{key}.json"] = json.dumps({"n": number}).encode()
            members[f"{key}.cls"] = b"%d\n" % (number % 3)
            members[f"{key}.seg.png"] = picture(30, "PNG")
        write_tar(folder / f"train-{shard}.tar", members)
    (folder / "readme.md").write_text("mine")
    return folder


def test_our_shards_come_back(source: Path, tmp_path: Path) -> None:
    """Catalog, index files and manifest of our shards have the content and fingerprint they had."""
    pack(source, tmp_path / "out", shard_size=20_000)
    before = content(tmp_path / "out")
    old = load(tmp_path / "out")
    for name in ("dataset.json", "catalog.fdc", "shard-000001.idx"):
        (tmp_path / "out" / name).unlink()

    report = index(tmp_path / "out")

    after = content(tmp_path / "out")
    new = load(tmp_path / "out")
    assert (report.samples, report.classes) == (12, ("ant", "bee", "cat"))
    assert new.fingerprint == old.fingerprint
    assert (new.shards, new.class_counts) == (old.shards, old.class_counts)
    assert new.options == {"indexed": True}
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"dataset.json", "catalog.fdc"}
    assert verify(tmp_path / "out").problems == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset's
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_samples_are_those_of_webdataset(foreign: Path) -> None:
    """Keys, labels, images and fields of others' tars are what webdataset reads from them."""
    index(foreign)
    urls = [str(path) for path in sorted(foreign.glob("*.tar"))]
    expected = list(webdataset.WebDataset(urls, shardshuffle=False))

    with closing(TarSource(foreign)) as ours:
        assert len(ours) == len(expected) == 10
        for number, sample in enumerate(expected):
            assert ours.keys(np.array([number])) == [sample["__key__"]]
            assert ours.read(number) == sample["jpeg"]
            assert ours.labels()[number] == int(sample["cls"])
            fields = ours.read_fields(number)
            assert fields == {name: sample[name] for name in ("json", "seg.png", "txt")}
        assert ours.classes == ("0", "1", "2")


def test_foreign_tars_load_and_verify(foreign: Path) -> None:
    """The loader takes them with all that it promises; damage is found; other files may stay."""
    index(foreign)
    assert verify(foreign).problems == ()
    loader = fastdata.Loader(foreign, 4, seed=1, drop_last=False)
    assert sum(len(batch.labels) for batch in loader) == 10

    shard = foreign / "train-0.tar"
    data = bytearray(shard.read_bytes())
    with closing(TarSource(foreign)) as source:
        place = int(source.rows(np.array([2]))["offset"][0]) + 30
        (key,) = source.keys(np.array([2]))
    data[place] ^= 1
    shard.write_bytes(data)

    assert {(problem.file, problem.key) for problem in verify(foreign).problems} == {
        ("train-0.tar", None),
        ("train-0.tar", key),
    }
    with pytest.raises(ShardError, match="repair it or pack again, or index it as it is"):
        index(foreign)


def test_what_is_left_out_is_listed(tmp_path: Path) -> None:
    """Samples without an image, or with a broken one, are named in skipped.jsonl and counted."""
    members = {
        "good.jpg": picture(1),
        "text.txt": b"no image",
        "cut.jpg": picture(2)[:100],
        "named.jpg": picture(3),
        "named.cls": b"tabby cat",
        "no extension": b"",
        ".hidden": b"",
        "__meta__/x.json": b"{}",
    }
    write_tar(tmp_path / "a.tar", members)

    report = index(tmp_path)

    lines = (tmp_path / "skipped.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a.tar/cut", "a.tar/text"]
    assert load(tmp_path).skipped == {"no image among its members": 1, "no usable image": 1}
    assert load(tmp_path).noted == {NO_LABEL: 1}
    assert (report.samples, report.fields, report.classes) == (2, ("cls",), ())
    assert verify(tmp_path).problems == ()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.jpg": b"", "A/b.jpg": b"", "a.txt": b""}, "are not consecutive"),
        ({"a.jpg": b"", "a.JPG": b""}, "two members of this extension"),
    ],
)
def test_torn_samples_are_errors(members: dict[str, bytes], message: str, tmp_path: Path) -> None:
    """A sample whose members are apart, or twice there, is not guessed at."""
    write_tar(tmp_path / "a.tar", members)
    with pytest.raises(ShardError, match=message):
        index(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.tar"}


def test_names_lead_nowhere(tmp_path: Path) -> None:
    """Absolute names and names with .. are keys like others; nothing is written outside."""
    (tmp_path / "in").mkdir()
    names = ["/etc/x.jpg", "../../y.jpg", "a/../../z.jpg"]
    write_tar(tmp_path / "in/a.tar", {name: picture(1) for name in names})

    index(tmp_path / "in")

    with closing(TarSource(tmp_path / "in")) as source:
        assert source.keys(np.arange(3)) == [name[:-4] for name in names]
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_refuses(source: Path, tmp_path: Path) -> None:
    """Whole data sets, unfinished packs, LMDB files, folders without tars."""
    pack(source, tmp_path / "out")
    pack(source, tmp_path / "one.lmdb")
    before = content(tmp_path / "out")
    with pytest.raises(DestinationError, match="holds a data set already"):
        index(tmp_path / "out")
    assert content(tmp_path / "out") == before
    with pytest.raises(OptionError, match="holds its index"):
        index(tmp_path / "one.lmdb")
    with pytest.raises(NotADatasetError, match="not a folder with tars"):
        index(source)
    shutil.copytree(tmp_path / "out", tmp_path / "begun")
    (tmp_path / "begun/.pack.journal").write_text("{}")
    with pytest.raises(DestinationError, match="unfinished pack"):
        index(tmp_path / "begun")

    index(tmp_path / "out", overwrite=True)

    assert load(tmp_path / "out").options == {"indexed": True}


def test_the_same_tars_give_the_same_bytes(foreign: Path, tmp_path: Path) -> None:
    """An index has no time and no place in it."""
    shutil.copytree(foreign, tmp_path / "copy")
    index(foreign)
    index(tmp_path / "copy")

    assert content(foreign) == content(tmp_path / "copy")


FOREIGN_FILES = {
    "dataset.json": b'{"name": "pets"}',
    "catalog.fdc": b"other",
    "skipped.jsonl": b'{"mine": 1}\n',
    "train-1.idx": b"v1.2 1\njpg 512 100 x.jpg\n",
}


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_files_of_others_are_refused(foreign: Path, name: str) -> None:
    """A file that fastdata did not write is named, and nothing is touched without --overwrite."""
    (foreign / name).write_bytes(FOREIGN_FILES[name])
    before = content(foreign)

    with pytest.raises(DestinationError, match=rf"{re.escape(name)}: not written by .*--overwrite"):
        index(foreign)
    assert content(foreign) == before

    index(foreign, overwrite=True)

    assert verify(foreign).problems == ()
    kept = name == "skipped.jsonl"  # nothing was left out: there is no such list to replace it
    assert ((foreign / name).read_bytes() == FOREIGN_FILES[name]) == kept


def test_the_same_index_files_may_be_there(foreign: Path, tmp_path: Path) -> None:
    """Others' tools write them, too: identical ones are left alone."""
    shutil.copytree(foreign, tmp_path / "copy")
    index(tmp_path / "copy")
    for path in (tmp_path / "copy").glob("*.idx"):
        shutil.copy(path, foreign)
    before = {path: path.stat().st_ino for path in foreign.glob("*.idx")}

    index(foreign)

    assert content(foreign) == content(tmp_path / "copy")
    assert before == {path: path.stat().st_ino for path in foreign.glob("*.idx")}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_index_that_fails_leaves_the_old_one_or_the_new(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Never parts of both under a manifest, and the old one up to the moment of replacing it."""
    index(foreign)
    write_tar(foreign / "train-2.tar", {"x/y.jpg": picture(1), "x/cut.jpg": picture(2)[:50]})
    before = content(foreign)
    outcomes = ""
    for at in count(1):
        folder = Path(shutil.copytree(foreign, tmp_path / f"{at}"))
        fault = Failure(at, number)
        with monkeypatch.context() as patch:
            install(fault, folder, patch)
            with suppress(DestinationError):
                index(folder, overwrite=True)
        if fault.calls < at:
            break
        left = content(folder)
        assert not [name for name in left if name.endswith((".tmp", ".lock")) and number != 5]
        if "dataset.json" not in left:
            outcomes += "-"
        elif left["dataset.json"] == before["dataset.json"]:
            assert left == before or number == errno.EIO
            assert before.items() <= left.items()
            outcomes += "o"
        else:
            assert {problem.kind for problem in verify(folder).problems} <= {"extra"}
            outcomes += "n"
    assert re.fullmatch("[on]{20,}-+n+", outcomes), outcomes
