"""A folder of tar shards as a destination: members, shards, and what a pack may remove.

Shards are WebDataset's; beside each lies the index that DALI's reader takes. The same samples give
the same bytes on every machine.
"""

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path

from fastdata.converters.destination import Item, Placed, check_size
from fastdata.converters.journal import Journal, Noted
from fastdata.converters.stages import Sink
from fastdata.converters.tar.packed_folder import refuse_foreign
from fastdata.dataset import manifest
from fastdata.dataset.catalog.builder import CatalogBuilder
from fastdata.dataset.manifest import (
    CATALOG_NAME,
    FILE_NAME,
    LOCK_NAME,
    MARK_NAME,
    REPORT_NAME,
    Manifest,
    Shard,
    Stored,
    digest_text,
    sha256_text,
)
from fastdata.errors import DestinationError
from fastdata.system.checksum import crc32c
from fastdata.system.files import (
    TMP_SUFFIX,
    create,
    fsync_folder,
    own_size,
    publish,
    temporary,
    write_all,
    write_atomically,
)

BLOCK = 512
END = bytes(2 * BLOCK)  # POSIX: an archive ends with two blocks of zeros

_NAME = 100  # bytes of the fields of a USTAR header
_PREFIX = 155
_SPACE = re.compile(rb"[\t\n\v\f\r ]")

# Hashing and writing release the GIL and queue for it again after the readers, so do it seldom.
_CHUNK = 1 << 20


def member_header(name: bytes, size: int) -> bytes:
    """Header blocks of a regular file: one USTAR block, or PAX blocks where the name needs them.

    Args:
        name: Path within the archive, not empty.
        size: Bytes of data, less than 8 GiB.
    """
    if len(name) <= _NAME:
        return _block(name, b"", size, b"0")
    # The shortest prefix that will do, as Python's tarfile chooses it.
    cut = name.find(b"/", len(name) - _NAME - 1)
    if 0 < cut <= _PREFIX and cut + 1 < len(name):
        return _block(name[cut + 1 :], name[:cut], size, b"0")
    record = _pax_record(b"path", name)
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        # PAX values are UTF-8 unless this record, which comes first, says otherwise.
        record = _pax_record(b"hdrcharset", b"BINARY") + record
    pax = _block(b"././@PaxHeader", b"", len(record), b"x")
    return pax + record + padding(len(record)) + _block(name[:_NAME], b"", size, b"0")


def padding(size: int) -> bytes:
    """Zeros from the end of a member's data to the next block."""
    return bytes(-size % BLOCK)


def index_name(shard: str) -> str:
    """File name of a shard's index."""
    return f"{shard.removesuffix('.tar')}.idx"


def index_line(members: list[tuple[bytes, int, int, bytes]]) -> bytes:
    """A sample's line in the index.

    Args:
        members: Extension, offset, size and name of each.
    """
    # DALI splits the line at white space, and shows the name only in its messages.
    return b" ".join(
        b"%b %d %d %b" % (_SPACE.sub(b"_", extension), offset, size, _SPACE.sub(b"_", name))
        for extension, offset, size, name in members
    )


def index_file(lines: list[bytes]) -> bytes:
    """The index of a shard, from the lines of its samples."""
    return b"v1.2 %d\n%b\n" % (len(lines), b"\n".join(lines))


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    """``length keyword=value`` and a line feed; the length counts its own digits."""
    rest = len(keyword) + len(value) + 3
    length = rest + len(str(rest))
    if len(str(length)) > len(str(rest)):
        length += 1
    return b"%d %b=%b\n" % (length, keyword, value)


def _block(name: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
    owner = b"0000644\0" + 2 * b"0000000\0"  # mode, user, group
    size_and_time = b"%011o\0" % size + b"00000000000\0"
    link, owner_names_and_devices = bytes(_NAME), bytes(64 + 16)
    start = name.ljust(_NAME, b"\0") + owner + size_and_time
    end = kind + link + b"ustar\00000" + owner_names_and_devices + prefix.ljust(_PREFIX + 12, b"\0")
    # The checksum counts itself as eight blanks.
    return start + b"%06o\0 " % (sum(start) + sum(end) + 8 * 0x20) + end


class _Members:
    """A sample as members of an archive.

    Attributes:
        members: Name, header and content of each member by extension.
        size: Bytes of all together, padding included.
    """

    def __init__(self, item: Item) -> None:
        self.members: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        self.size = 0
        contents = {item.extension: item.image, "cls": b"%d" % item.label, **item.fields}
        for text, data in contents.items():
            extension = text.encode("ascii")
            name = item.key + b"." + extension
            header = member_header(name, len(data))
            self.members[extension] = name, header, data
            self.size += len(header) + len(data) + -len(data) % BLOCK


class _Shard:
    """The shard that is being written, under a temporary name."""

    def __init__(self, folder: Path, number: int, sink: Sink) -> None:
        self._path = folder / f"shard-{number:06d}.tar"
        self._tmp = temporary(self._path)
        self._sink = sink
        self._fd = -1  # opened by the sink's thread
        self._pieces: list[bytes] = []
        self._flushed = 0
        self._digest = hashlib.sha256()
        self._lines: list[bytes] = []
        self.bytes = 0

    def write(self, sample: _Members) -> dict[str, int]:
        """Write a sample; return the offset of each member's content by extension."""
        line = []
        for extension, (name, header, data) in sample.members.items():
            line.append((extension, self.bytes + len(header), len(data), name))
            pieces = (header, data, padding(len(data)))
            self._pieces += pieces
            self.bytes += sum(map(len, pieces))
        self._lines.append(index_line(line))
        if self.bytes - self._flushed >= _CHUNK:
            self.flush()
        return {extension.decode("ascii"): offset for extension, offset, *_ in line}

    def flush(self, end: bytes = b"") -> None:
        """Hand over what was collected, and these bytes after it."""
        self._pieces.append(end)
        self.bytes += len(end)
        self._sink.put(partial(self._write, self._pieces), self.bytes - self._flushed)
        self._pieces = []
        self._flushed = self.bytes

    def publish(self, journal: Journal, note: bytes) -> Shard:
        """Sync the archive, record it in the journal, then give it its name."""
        os.fsync(self._fd)
        self._close()
        index = index_file(self._lines)
        # The index comes first, so that a shard under its name is complete.
        write_atomically(self._path.with_name(index_name(self._path.name)), index)
        shard = Shard(
            bytes=self.bytes,
            digest=sha256_text(self._digest.digest()),
            name=self._path.name,
            samples=len(self._lines),
            index=digest_text(index),
        )
        journal.append(shard, note)
        publish(self._path)
        return shard

    def remove(self) -> None:
        """Close and remove the temporary file, in whatever state it is."""
        with suppress(OSError):
            self._close()
        self._tmp.unlink(missing_ok=True)

    def _write(self, pieces: list[bytes]) -> None:
        if self._fd < 0:
            self._fd = create(self._tmp)
        data = b"".join(pieces)
        self._digest.update(data)
        write_all(self._fd, data)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class TarWriter:
    """A folder of shards; see :class:`fastdata.converters.destination.Writer`.

    Args:
        folder: An existing folder.
        shard_size: Bytes that a shard does not exceed, unless a single sample does.
        journal: Where finished shards are recorded; it was begun.
        done: Shards that are finished already; this writer continues after them.
    """

    def __init__(
        self, folder: Path, shard_size: int, journal: Journal, done: tuple[Shard, ...] = ()
    ) -> None:
        self.sink = Sink()
        self._folder = folder
        self._shard_size = shard_size
        self._journal = journal
        self._shards = list(done)  # the sink's thread appends to it
        self._number = len(done)
        self._open: _Shard | None = None
        self._unfinished: list[_Shard] = []

    def append(self, item: Item, note: Callable[[], bytes] | None = None) -> Placed:
        """Write the next sample: KEY.extension, KEY.cls, then KEY.field for each field."""
        members = _Members(item)
        end = members.size + len(END)
        if note and self._open and self._open.bytes + end > self._shard_size:
            self.end_shard(note())
        if self._open is None:
            self._open = _Shard(self._folder, self._number, self.sink)
            self._unfinished.append(self._open)
        offsets = self._open.write(members)
        fields = {
            name: (offsets[name], len(data), crc32c(data)) for name, data in item.fields.items()
        }
        return Placed(self._number, offsets[item.extension], fields)

    def end_shard(self, note: bytes) -> None:
        """End the archive; its thread then syncs, records and publishes it."""
        if self._open is not None:
            self._open.flush(END)
            self.sink.put(partial(self._publish, self._open, note), len(note))
            self._open = None
            self._number += 1

    def finish(self) -> tuple[Shard, ...]:
        """Wait for the last shard."""
        self.sink.join()
        self.sink.close()
        return tuple(self._shards)

    def put_catalog(self, catalog: CatalogBuilder) -> Stored:
        """Write the catalog beside the shards."""
        return Stored(*catalog.write(self._folder / CATALOG_NAME))

    def publish(self, manifest: bytes) -> None:
        """Write dataset.json."""
        write_atomically(self._folder / FILE_NAME, manifest)

    def abort(self) -> None:
        """Remove the shards that are being written."""
        self.sink.close()
        for shard in self._unfinished:
            shard.remove()

    def _publish(self, shard: _Shard, note: bytes) -> None:
        self._shards.append(shard.publish(self._journal, note))
        self._unfinished.remove(shard)


class TarDestination:
    """A folder of tar shards; see :class:`fastdata.converters.destination.Destination`."""

    kind = "tar"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_path = path / LOCK_NAME
        self.report_path = path / REPORT_NAME
        self.journal = Journal(path / MARK_NAME)

    def create(self) -> bool:
        """Make the folder."""
        self._refuse_file()
        if self.path.exists():
            return False
        self.path.mkdir(parents=True)
        return True

    def manifest(self) -> Manifest | None:
        """Read dataset.json and compare the sizes of the files that it names."""
        self._refuse_file()
        if not self.path.exists():
            return None
        self._refuse_others()
        if not os.path.lexists(self.path / FILE_NAME):
            return None
        found = manifest.load(self.path)
        for shard in found.shards:
            check_size(self.path / shard.name, shard.bytes)
        check_size(self.path / CATALOG_NAME, found.catalog.bytes)
        if found.report is not None:
            check_size(self.report_path, found.report.bytes)
        return found

    def is_clean(self) -> bool:
        """Whether there is neither a journal, nor a lock, nor a temporary file."""
        return not any(
            name in (MARK_NAME, LOCK_NAME) or name.endswith(TMP_SUFFIX) for name in self._names()
        )

    def check(self, mark: str, *, overwrite: bool) -> None:
        """Refuse others' files, and without ``overwrite`` another pack's shards."""
        self._refuse_others()
        if not overwrite:
            self.journal.refuse_other(mark, self.path)

    def prepare(self, mark: str, *, overwrite: bool) -> list[Noted]:
        """Mark the folder as unfinished, then clear it."""
        # The mark is written first and the old manifest removed before any shard: a folder that is
        # half overwritten must look neither complete nor like somebody else's.
        if overwrite or self.journal.mark() is None:
            self.journal.begin(mark)
        (self.path / FILE_NAME).unlink(missing_ok=True)
        fsync_folder(self.path)
        whole = list(takewhile(self._is_there, self.journal.read()))
        self.journal.keep(len(whole))
        keep = {MARK_NAME, LOCK_NAME}
        for shard, _ in whole:
            keep |= {shard.name, index_name(shard.name)}
        self._remove(self._names() - keep)
        return whole

    def writer(self, shard_size: int, done: tuple[Shard, ...]) -> TarWriter:
        """Begin to write."""
        return TarWriter(self.path, shard_size, self.journal, done)

    def give_up(self) -> None:
        """Remove everything, unless finished shards are worth keeping."""
        if (self.path / FILE_NAME).exists():  # an old data set, still complete
            self.journal.remove()
        elif not self.journal.read():
            self._remove(self._names() - {LOCK_NAME})

    def finish(self, found: Manifest) -> None:  # noqa: ARG002 (the rest went before it came)
        """Remove the journal and temporary files."""
        self._remove({name for name in self._names() if name.endswith(TMP_SUFFIX)})
        self.journal.remove()

    def total_bytes(self) -> int:
        """Size of all files together."""
        total = 0
        for name in self._names() - {LOCK_NAME}:
            with suppress(OSError):  # a dangling link in place of an index
                total += (self.path / name).stat().st_size
        return total

    def _names(self) -> set[str]:
        return set(os.listdir(self.path))

    def _remove(self, names: set[str]) -> None:
        # The journal goes last, as without it nothing says that the rest is ours.
        for name in sorted(names, key=lambda name: name == MARK_NAME):
            (self.path / name).unlink()

    def _is_there(self, entry: Noted) -> bool:
        shard = entry[0]
        size = own_size(self.path / shard.name)
        return size == shard.bytes and own_size(self.path / index_name(shard.name)) is not None

    def _refuse_others(self) -> None:
        if names := self._names() - {LOCK_NAME}:
            refuse_foreign(self.path, names)

    def _refuse_file(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise DestinationError(
                f"{self.path}: a file; give a folder for shards, or a name that ends in .lmdb"
            )
