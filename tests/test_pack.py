"""``pack`` turns any folder into a whole data set, or into a clear error and nothing else."""

import errno
import gc
import hashlib
import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from fastdata import manifest
from fastdata.catalog import Catalog
from fastdata.checksum import crc32c
from fastdata.converters import job, read
from fastdata.converters.destination import destination
from fastdata.converters.listing import Listing, Skipped
from fastdata.converters.pack import PackReport, pack, parse_size
from fastdata.converters.read import Loaded
from fastdata.errors import (
    BusyError,
    CorruptError,
    DestinationError,
    ManifestError,
    OptionError,
    ShardError,
    SourceError,
)
from fastdata.files import Lock
from fastdata.lmdb_file import open_file, read_manifest

KINDS = pytest.mark.parametrize("name", ["shards", "one.lmdb"])

HOLD = """
import sys, time
from pathlib import Path
from fastdata.files import Lock
with Lock(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""


def picture(number: int, kind: str = "JPEG") -> bytes:
    """An image of (20 + number) x 10 pixels."""
    buffer = io.BytesIO()
    Image.new("RGB", (20 + number, 10), (number * 7 % 256, 0, 0)).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Twelve images in three classes: two formats, dots, unicode, names that are no text."""
    root = tmp_path / "source"
    names = [
        *("ant/a.jpg", "ant/a.b.jpg", "ant/a_b.jpg", "ant/deep/a.jpg", "bee/x.jpg", "bee/x.png"),
        *("bee/\u6d77.jpg", "bee/lie.jpg", "cat/1.jpg", "cat/2", "cat/" + "long" * 40 + ".jpg"),
    ]
    for number, name in enumerate([*map(os.fsencode, names), b"cat/\xff\xfe.jpg"]):
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        png = name.endswith(b".png") or b"lie" in name
        with open(path, "wb") as file:
            file.write(picture(number, "PNG" if png else "JPEG"))
    return root


def content(path: Path) -> dict[str, bytes]:
    """Bytes of every file of a data set."""
    files = path.iterdir() if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


def load(path: Path) -> manifest.Manifest:
    """The manifest of either kind."""
    return manifest.load(path) if path.is_dir() else read_manifest(open_file(path))


def originals(source: Path) -> dict[str, bytes]:
    """Content of every source file by its relative name."""
    return {
        os.path.relpath(os.path.join(folder, name), source): Path(folder, name).read_bytes()
        for folder, _, files in os.walk(source)
        for name in files
    }


# What others read in our files


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_the_shards(source: Path, tmp_path: Path) -> None:
    """The webdataset library sees the catalog's keys, in its order, with bytes and labels."""
    wds = pytest.importorskip("webdataset")
    report = pack(source, tmp_path / "out", shard_size=8000)
    urls = sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    assert len(urls) == report.shards > 2

    theirs = list(wds.WebDataset(urls, shardshuffle=False))
    gc.collect()  # it leaves its files open, for which no later test shall be blamed

    catalog = Catalog.from_file(tmp_path / "out/catalog.fdc")
    ids = np.arange(report.samples)
    files = originals(source)
    assert [sample["__key__"] for sample in theirs] == catalog.keys(ids)
    assert [int(sample["cls"]) for sample in theirs] == catalog.rows(ids)["label"].tolist()
    for sample, name in zip(theirs, catalog.names(ids), strict=True):
        extension = "png" if name in ("bee/x.png", "bee/lie.jpg") else "jpg"
        assert sample[extension] == files[name]


def test_tar_extracts_the_source(source: Path, tmp_path: Path) -> None:
    """tar(1) brings back every file under its key."""
    tar = shutil.which("tar")
    if tar is None:
        pytest.skip("no tar(1) here")
    pack(source, tmp_path / "out")
    (tmp_path / "back").mkdir()
    command = [tar, "xf", "../out/shard-000000.tar"]
    subprocess.run(command, cwd=tmp_path / "back", check=True)

    back = originals(tmp_path / "back")
    images = {name: data for name, data in back.items() if not name.endswith(".cls")}

    assert sorted(images.values()) == sorted(originals(source).values())
    assert images["ant/a_b.jpg"] == (source / "ant/a.b.jpg").read_bytes()
    assert images["ant/a_b-2.jpg"] == (source / "ant/a_b.jpg").read_bytes()
    assert images["bee/lie.png"] == (source / "bee/lie.jpg").read_bytes()
    assert back["cat/1.cls"] == b"2"


def test_lmdb_reads_the_file(source: Path, tmp_path: Path) -> None:
    """The lmdb module alone finds the bytes of every sample under its id."""
    report = pack(source, tmp_path / "out.lmdb")
    with (
        lmdb.open(str(tmp_path / "out.lmdb"), subdir=False, readonly=True, lock=False) as env,
        env.begin() as transaction,
    ):
        entries = dict(transaction.cursor())

    header, part = entries[b"fastdata:catalog"], entries[b"fastdata:catalog:00000000"]
    catalog = Catalog.from_parts(header, lambda _: memoryview(part), "it")
    files = originals(source)
    names = catalog.names(np.arange(report.samples))
    assert sorted(names) == sorted(files)
    for number, name in enumerate(names):
        assert entries[number.to_bytes(8, "big")] == files[name]


@KINDS
def test_the_catalog_describes_every_sample(source: Path, tmp_path: Path, name: str) -> None:
    """Checksum, size, format and label are those of the file; counts agree with the folders."""
    pack(source, tmp_path / name, shard_size=5000)
    found = load(tmp_path / name)
    other = pack(source, tmp_path / "plain", shuffle=False)
    catalog = Catalog.from_file(tmp_path / "plain/catalog.fdc")

    rows = catalog.rows(np.arange(other.samples))
    files = originals(source)
    for row, file in zip(rows, catalog.names(np.arange(other.samples)), strict=True):
        with Image.open(io.BytesIO(files[file])) as image:
            assert (row["width"], row["height"]) == image.size
            assert row["flags"] == {"JPEG": 1, "PNG": 2}[str(image.format)]
        assert row["crc"] == crc32c(files[file])
        assert found.classes[row["label"]] == file.partition("/")[0]
    assert found.class_counts == (4, 4, 4)
    assert found.samples == 12
    assert sum(shard.samples for shard in found.shards) == 12


def test_shards_are_what_the_manifest_says(source: Path, tmp_path: Path) -> None:
    """Digest and size of every file fit; places in the catalog lead to the bytes."""
    out = tmp_path / "out"
    report = pack(source, out, shard_size=8000)
    found = manifest.load(out)

    files = content(out)
    for shard in found.shards:
        data = files[shard.name]
        assert (shard.bytes, shard.digest) == (len(data), digest(data))
        assert shard.index == digest(files[shard.name.replace(".tar", ".idx")])
    assert found.catalog.digest == digest(files["catalog.fdc"])
    assert report.bytes == sum(map(len, files.values()))
    rows = Catalog.from_file(out / "catalog.fdc").rows(np.arange(12))
    for row in rows:
        data = files[found.shards[row["shard"]].name]
        assert crc32c(data[row["offset"] :][: row["length"]]) == row["crc"]


def digest(data: bytes) -> str:
    """As manifests spell it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def canonical(value: object) -> bytes:
    """JSON as docs/format.md hashes it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def test_the_document_is_enough_to_read_a_data_set(source: Path, tmp_path: Path) -> None:
    """A reader that knows docs/format.md alone, and none of our code, finds every sample."""
    pack(source, tmp_path / "out", shard_size=8000)
    files = content(tmp_path / "out")

    described = json.loads(files["dataset.json"])
    stated = described.pop("digest")
    assert stated == digest(canonical(described))
    raw = files["catalog.fdc"]
    magic, version, length, _ = struct.unpack_from("<8sIII", raw)
    assert (magic, version, (20 + length) % 8) == (b"\x89FDC\r\n\x1a\n", 1, 0)
    header = json.loads(raw[20 : 20 + length])
    n, (part,) = header["rows"], header["parts"]
    text = 20 + length + 40 * n
    table = text + -(-part["text"] // 8) * 8
    assert len(raw) == table + 8  # one block, its checksum and padding
    labels, begin, seen = b"", 0, {}
    for row in range(n):
        offset, size, _, shard, label, _, _, _, end = struct.unpack_from(
            "<QIIIiIIII", raw, 20 + length + 40 * row
        )
        key, name = raw[text + begin : text + end].split(b"\0")
        begin = end
        labels += struct.pack("<i", label)
        data = files[described["shards"][shard]["name"]]
        seen[os.fsdecode(name)] = data[offset : offset + size]
        assert data[offset - 512 :].startswith((key + b".")[:100])
        assert os.fsdecode(name).startswith(described["classes"][label] + "/")
    assert seen == originals(source)
    content_hash = {
        "classes": described["classes"],
        "fields": described["fields"],
        "labels": hashlib.sha256(labels).hexdigest(),
        "shards": [shard["digest"] for shard in described["shards"]],
    }
    assert described["fingerprint"] == digest(canonical(content_hash))
    paths = sorted(seen, key=lambda path: (*os.path.split(path)[:1], path))
    ends = np.cumsum([len(os.fsencode(path)) for path in paths])
    listed = b"".join(map(os.fsencode, paths)) + struct.pack(f"<{n}Q", *ends.tolist())
    sizes = struct.pack(f"<{n}Q", *(len(seen[path]) for path in paths))
    classes = json.dumps(described["classes"]).encode()
    assert described["source"] == digest(classes + listed + sizes)


# The content depends on source and options alone


@KINDS
def test_workers_change_nothing(
    source: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte is the same for one thread and for many, and for a narrow window of reading."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pack(source, tmp_path / "a" / name, workers=1, shard_size=5000)
    monkeypatch.setattr(read, "_WINDOW_BYTES", 1)
    pack(source, tmp_path / "b" / name, workers=7, shard_size=5000)

    assert content(tmp_path / "a" / name) == content(tmp_path / "b" / name)


def test_a_copy_of_the_source_gives_the_same_data_set(source: Path, tmp_path: Path) -> None:
    """Neither place nor time enters the files."""
    shutil.copytree(source, tmp_path / "copy")

    pack(source, tmp_path / "a")
    pack(tmp_path / "copy", tmp_path / "b")

    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_the_order_is_shuffled_by_the_seed(source: Path, tmp_path: Path) -> None:
    """Each seed has an order of its own; without a shuffle it is that of ImageFolder."""

    def names(**options: int) -> list[str]:
        out = tmp_path / "out.d"
        pack(source, out, overwrite=True, **options)  # type: ignore[arg-type]
        return Catalog.from_file(out / "catalog.fdc").names(np.arange(12))

    plain = names(shuffle=False)
    zero, one = names(seed=0), names(seed=1)

    assert plain == sorted(plain, key=lambda name: (os.path.dirname(name), name))
    assert sorted(zero) == sorted(one) == sorted(plain)
    assert len({tuple(plain), tuple(zero), tuple(one)}) == 3


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    """Its label is -1, and so it says in the shard."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.jpg").write_bytes(picture(0))

    report = pack(tmp_path / "src", tmp_path / "out")

    assert report.classes == 0
    assert Catalog.from_file(tmp_path / "out/catalog.fdc").column("label").tolist() == [-1]
    assert b"-1" in (tmp_path / "out/shard-000000.tar").read_bytes()


# Files that cannot be packed


@KINDS
def test_what_is_no_image_is_skipped(source: Path, tmp_path: Path, name: str) -> None:
    """Text, a cut image, an empty file and a stray file are listed with reasons, and counted."""
    (source / "ant/note.jpg").write_text("no image at all")
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    (source / "cat/empty.jpg").touch()
    (source / "stray.jpg").write_bytes(picture(1))

    report = pack(source, tmp_path / name)

    assert report.samples == 12
    reasons = dict(report.skipped)
    assert sorted(reasons) == ["ant/note.jpg", "bee/cut.jpg", "cat/empty.jpg", "stray.jpg"]
    assert reasons["ant/note.jpg"].startswith("no usable image: not an image")
    assert reasons["bee/cut.jpg"].startswith("no usable image: truncated")
    counts = {"beside class folders": 1, "empty file": 1, "no usable image": 2}
    assert report.skipped_counts == load(tmp_path / name).skipped == counts


def sabotage(
    monkeypatch: pytest.MonkeyPatch, name: bytes, action: Callable[[bytes], object]
) -> None:
    """Has something happen to a source file right before it is opened."""
    real = os.open

    def opened(path: str | bytes, flags: int, mode: int = 0o777) -> int:
        if isinstance(path, bytes) and path.endswith(name):
            action(path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", opened)


def grow(path: bytes) -> None:
    """Adds to a file."""
    with open(path, "ab") as file:
        file.write(b"more")


def become_a_fifo(path: bytes) -> None:
    """Replaces a file by a FIFO that nobody writes to."""
    os.unlink(path)
    os.mkfifo(path)


def refuse(path: bytes) -> None:
    """Denies access, which root is never denied."""
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (os.unlink, "vanished"),
        (grow, "changed while it was read"),
        (become_a_fifo, "changed while it was read"),
        (refuse, "unreadable: Permission denied"),
    ],
)
def test_a_file_that_changes_is_skipped(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[bytes], object],
    reason: str,
) -> None:
    """Between the listing and the reading anything may happen to a file, and never a hang."""
    sabotage(monkeypatch, b"cat/1.jpg", action)

    report = pack(source, tmp_path / "out")

    assert report.samples == 11
    assert report.skipped == (("cat/1.jpg", reason),)


def test_a_file_that_changes_in_place_while_read_is_skipped(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same size is not enough: half of the old and half of the new would be a torn sample."""
    real = os.fstat
    seen: list[int] = []

    def fstat(fd: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("cat/1.jpg"):
            seen.append(fd)
            if len(seen) == 2:
                os.utime(source / "cat/1.jpg", (1, 1))
        return real(fd)

    monkeypatch.setattr(os, "fstat", fstat)
    report = pack(source, tmp_path / "out", workers=1)

    assert report.skipped == (("cat/1.jpg", "changed while it was read"),)


def test_too_many_open_files_are_not_the_files_fault(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipping good files because of the process's own limit would lose data silently."""

    def fail(path: bytes) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    sabotage(monkeypatch, b"cat/1.jpg", fail)

    with pytest.raises(SourceError, match="Too many open files"):
        pack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_strict_makes_a_skip_an_error(source: Path, tmp_path: Path) -> None:
    """What the listing or the reading would leave out is named, and nothing is written."""
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    with pytest.raises(SourceError, match=r"bee/cut.jpg: no usable image: truncated"):
        pack(source, tmp_path / "out", strict=True)
    (source / "bee/cut.jpg").write_bytes(b"")
    with pytest.raises(SourceError, match=r"bee/cut.jpg: empty file"):
        pack(source, tmp_path / "out", strict=True)
    assert os.listdir(tmp_path) == ["source"]


@KINDS
def test_a_source_without_an_image_is_an_error(tmp_path: Path, name: str) -> None:
    """Files that turn out to be none leave nothing behind but the error with their reasons."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.jpg").write_text("text")

    with pytest.raises(SourceError, match="holds no image; left out: 1 no usable image"):
        pack(tmp_path / "src", tmp_path / name)
    assert os.listdir(tmp_path) == ["src"]


# What is there already


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
    with pytest.raises(DestinationError, match=r"was packed with .*--overwrite"):
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
    monkeypatch.setattr(job, "read_all", interrupted_after(5))

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
        with pytest.raises(DestinationError, match="within the source"):
            pack(source, place)


def test_a_link_to_a_folder_is_followed(source: Path, tmp_path: Path) -> None:
    """The data set lies where the link leads, and the link stays."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "link.lmdb").symlink_to(tmp_path / "disk2.lmdb")

    pack(source, tmp_path / "link")
    pack(source, tmp_path / "link.lmdb")

    assert (tmp_path / "disk/dataset.json").exists()
    assert (tmp_path / "disk2.lmdb").exists()
    assert (tmp_path / "link.lmdb").is_symlink()


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


# What goes wrong on the way


def interrupted_after(
    count: int, error: BaseException | None = None
) -> Callable[[Listing, Iterator[int], int], Iterator[tuple[int, Loaded | Skipped]]]:
    """A reader that fails after so many files."""

    def broken(
        listing: Listing, order: Iterator[int], workers: int
    ) -> Iterator[tuple[int, Loaded | Skipped]]:
        for done, entry in enumerate(read.read_all(listing, order, workers)):
            if done == count:
                raise error or KeyboardInterrupt
            yield entry

    return broken


@KINDS
@pytest.mark.parametrize("count", [0, 1, 7, 11])
def test_an_interrupted_pack_leaves_nothing_partial(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    """No temporary file, no lock, no manifest; the same command then ends as if never stopped."""
    (tmp_path / "fresh").mkdir()
    pack(source, tmp_path / "fresh" / name, shard_size=5000)
    out = tmp_path / name
    with monkeypatch.context() as patch:
        patch.setattr(job, "read_all", interrupted_after(count))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=5000)

    left = originals(tmp_path)
    assert not [file for file in left if file.endswith((".tmp", ".lock", "dataset.json.x"))]
    assert out.exists() == any(file.startswith("shards/shard-") for file in left)
    if out.exists():
        whole = content(tmp_path / "fresh" / name)
        ours = {file: data for file, data in content(out).items() if file != ".pack.json"}
        assert ours.items() <= whole.items()

    pack(source, out, shard_size=5000)

    assert content(out) == content(tmp_path / "fresh" / name)


SLOW = """
import sys, time
from fastdata.converters.pack import pack
def progress(done, *_):
    if done == 9:
        print("nine", flush=True)
        time.sleep(60)
pack(sys.argv[1], sys.argv[2], shard_size=5000, progress=progress)
"""


@KINDS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_middle(
    source: Path, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    """Control-C cleans up at once, kill -9 cannot; either way the next pack ends as it should."""
    (tmp_path / "fresh").mkdir()
    pack(source, tmp_path / "fresh" / name, shard_size=5000)
    command = [sys.executable, "-c", SLOW, str(source), str(tmp_path / name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"nine\n"
        child.send_signal(number)
        assert child.wait(10) == -number

    debris = [file for file in originals(tmp_path) if file.endswith((".tmp", ".lock"))]
    assert (debris == []) == (number == signal.SIGINT)

    pack(source, tmp_path / name, shard_size=5000)

    assert content(tmp_path / name) == content(tmp_path / "fresh" / name)
    assert sorted(os.listdir(tmp_path)) == sorted(["source", "fresh", name])


def test_another_pack_does_not_take_over_unfinished_work(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole shards of another source or with other options go only with overwrite."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(job, "read_all", interrupted_after(9))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=2000)
    before = content(out)

    with pytest.raises(DestinationError, match="unfinished pack of another source"):
        pack(source, out, shard_size=3000)
    assert content(out) == before

    assert pack(source, out, shard_size=3000, overwrite=True).samples == 12


@KINDS
def test_a_full_disk_is_one_clear_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It names the path, what is needed and what is free; the system's error is the cause."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(DestinationError, match=r"No space left.*bytes more, \d+ are free") as info:
        pack(source, tmp_path / name)

    assert str(tmp_path / name) in str(info.value)
    assert isinstance(info.value.__cause__, OSError)
    assert os.listdir(tmp_path) == ["source"]


def test_a_limit_on_the_size_of_files_is_told(source: Path, tmp_path: Path) -> None:
    """A real failing write, of the kernel's making, inside LMDB and in a shard."""
    script = """
import resource, signal, sys
from fastdata.converters.pack import pack
from fastdata.errors import DestinationError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    pack(sys.argv[1], sys.argv[2])
except DestinationError as error:
    print(error)
"""
    for name in ("out", "out.lmdb"):
        command = [sys.executable, "-c", script, str(source), str(tmp_path / name)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "are free" in result.stdout, result
        assert os.listdir(tmp_path) == ["source"]


def test_an_error_of_the_callback_is_the_callers(source: Path, tmp_path: Path) -> None:
    """A broken pipe of the progress bar is not blamed on the destination."""

    def broken(*_: int) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        pack(source, tmp_path / "out", progress=broken)
    assert os.listdir(tmp_path) == ["source"]


# Arguments and report


def test_progress_counts_every_file(source: Path, tmp_path: Path) -> None:
    """It ends at the totals, skipped files included, and never goes back."""
    (source / "bee/cut.jpg").write_bytes(picture(3)[:-20])
    calls: list[tuple[int, int, int, int]] = []

    report = pack(source, tmp_path / "out", progress=lambda *state: calls.append(state))

    assert [call[0] for call in calls] == list(range(1, 14))
    total = sum(len(data) for data in originals(source).values())
    assert calls[-1] == (13, total, 13, total)
    assert calls == sorted(calls)
    assert report.source_bytes == total - len(picture(3)[:-20])


def test_the_report(source: Path, tmp_path: Path) -> None:
    """It says what was written where."""
    report = pack(source, tmp_path / "new/out.lmdb")

    assert isinstance(report, PackReport)
    assert (report.kind, report.path) == ("lmdb", tmp_path / "new/out.lmdb")
    assert (report.samples, report.classes, report.shards) == (12, 3, 1)
    assert report.bytes == (tmp_path / "new/out.lmdb").stat().st_size
    assert report.seconds > 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MB", 256_000_000), ("1GiB", 2**30), ("64k", 64_000), (" 5 B ", 5), (7, 7), ("8", 8)],
)
def test_sizes(text: str | int, size: int) -> None:
    """MB are decimal, MiB binary."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "MB", "-5MB", "1.5GB", "5XB", "5 M B", 0, -1])
def test_what_is_no_size(text: str | int) -> None:
    """Each is an OptionError that shows the text."""
    with pytest.raises(OptionError, match="a size must be"):
        parse_size(text)


def test_arguments_are_checked_first(source: Path, tmp_path: Path) -> None:
    """A bad option or a missing source leaves no trace of a destination."""
    with pytest.raises(OptionError, match="workers must be 1 or more, found 0"):
        pack(source, tmp_path / "out", workers=0)
    with pytest.raises(OptionError, match="keep_bytes"):
        pack(source, tmp_path / "out", keep_bytes=False)
    with pytest.raises(SourceError, match="no such folder"):
        pack(tmp_path / "none", tmp_path / "out")
    assert os.listdir(tmp_path) == ["source"]


def test_packing_imports_no_torch(source: Path, tmp_path: Path) -> None:
    """Packing shards needs neither torch nor lmdb nor OpenCV."""
    script = """
import sys
from fastdata.converters.pack import pack
pack(sys.argv[1], sys.argv[2])
print(sorted({"torch", "cv2", "lmdb"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", script, str(source), str(tmp_path / "out")]

    assert subprocess.check_output(command, text=True) == "[]\n"


def test_the_lock_is_held_while_packing(source: Path, tmp_path: Path) -> None:
    """From within the callback, a second pack is refused."""
    seen: list[BaseException] = []

    def again(*_: int) -> None:
        try:
            with Lock(destination(tmp_path / "out").lock_path, "it"):
                pass
        except BusyError as error:
            seen.append(error)

    pack(source, tmp_path / "out", progress=again)

    assert len(seen) == 12
