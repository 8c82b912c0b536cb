"""Arrow and Parquet files that lie about themselves are errors, and nothing else is read."""

import io
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packing import picture

from fastdata.converters.pack import pack
from fastdata.errors import ShardError, SourceError

IMAGES = [picture(number) for number in range(4)]
MAKERS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def written(table: pa.Table, form: str, **options: Any) -> bytes:
    """A table as an Arrow file or stream."""
    buffer = io.BytesIO()
    with MAKERS[form](buffer, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def table(**columns: Any) -> pa.Table:
    """Four images and a label each."""
    return pa.table({"image": pa.array(IMAGES, pa.binary()), "label": [0, 1, 2, 0], **columns})


def refused(tmp_path: Path, data: bytes, *, kind: str = "arrow", **options: Any) -> str:
    """The message of the error that packing a file of these bytes gives."""
    path = tmp_path / f"lies.{kind}"
    path.write_bytes(data)
    with pytest.raises((ShardError, SourceError)) as caught:
        pack(path, tmp_path / "out", kind=kind, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("shift", [1, 64 << 10, 1 << 28, -(1 << 30)])
def test_an_offset_beyond_its_buffer_reads_no_memory(tmp_path: Path, form: str, shift: int) -> None:
    """A batch with a value that would end outside of the file's bytes is refused unread."""
    data = bytearray(written(table(), form))
    offsets = np.cumsum([0, *map(len, IMAGES)]).astype("<i4")
    last = data.index(offsets.tobytes()) + 16
    struct.pack_into("<i", data, last, offsets[-1] + shift)

    assert "offset" in refused(tmp_path, bytes(data)).lower()


def test_offsets_of_labels_and_of_further_columns_count(tmp_path: Path) -> None:
    """An index beyond its dictionary, and a text that is no UTF-8, are refused alike."""
    names = pa.array(["ant", "bee", "cat", "ant"]).dictionary_encode()
    data = bytearray(written(table(label=names), "stream"))
    at = data.rindex(struct.pack("<4i", 0, 1, 2, 0))
    struct.pack_into("<i", data, at, 1 << 20)
    assert "out of bounds" in refused(tmp_path, bytes(data))

    data = bytearray(written(table(caption=["aaaa", "bbbb", "cccc", "dddd"]), "stream"))
    data[data.index(b"bbbbcccc")] = 0xFF
    assert "UTF8" in refused(tmp_path, bytes(data), fields=("caption",))


@pytest.mark.parametrize("form", MAKERS)
def test_what_decompresses_to_more_than_memory_is_refused(tmp_path: Path, form: str) -> None:
    """The size that a compressed buffer states is compared with its size in the file."""
    whole = written(table(), form, compression="zstd")
    assert pack(_saved(tmp_path / "good.arrow", whole), tmp_path / "good").samples == 4
    at = whole.index(struct.pack("<q", sum(map(len, IMAGES))))
    data = bytearray(whole)
    struct.pack_into("<q", data, at, 1 << 40)

    assert "states that it holds" in refused(tmp_path, bytes(data))


def _saved(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", MAKERS)
def test_every_truncation_is_an_error_or_the_whole(tmp_path: Path, form: str) -> None:
    """A file that was cut within its data is never a smaller data set."""
    data = written(table(), form)
    end = data.index(IMAGES[3])
    for length in range(0, end, 97):
        refused(tmp_path, data[:length])


def test_rows_that_take_no_room_are_refused(tmp_path: Path) -> None:
    """A few bytes can state any number of rows without an image; they are not listed."""
    nothing = pa.chunked_array([pa.nulls(1_000_000, pa.binary())])
    rows = pa.table({"image": nothing})
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, row_group_size=1_000_000)

    assert "states 1000000 rows" in refused(tmp_path, buffer.getvalue(), kind="parquet")


def test_a_parquet_column_out_of_proportion_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row group that decompresses to far more than it is in the file is refused unread."""
    monkeypatch.setattr("fastdata.converters.sources.formats.bounds._MOST", 1 << 20)
    rows = pa.table({"image": [bytes(2 << 20)]})
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, compression="zstd", use_dictionary=False)

    assert "states that it holds" in refused(tmp_path, buffer.getvalue(), kind="parquet")


_PACK_ALL = """
import sys
from pathlib import Path
from fastdata.converters.pack import pack
from fastdata.errors import FastdataError
folder = Path(sys.argv[1])
for path in sorted(folder.glob("*.*")):
    try:
        pack(path, folder / "out", kind=path.suffix[1:], overwrite=True, workers=1)
    except FastdataError as error:
        assert str(path) in str(error), error
"""


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_bytes_that_were_changed_anywhere_crash_nothing(tmp_path: Path, kind: str) -> None:
    """Of files with any bytes changed each is packed or is an error that names it."""
    dice = random.Random(7)  # noqa: S311
    buffer = io.BytesIO()
    pq.write_table(table(), buffer)
    seeds = [written(table(), form, compression=how) for form in MAKERS for how in (None, "lz4")]
    seeds = [buffer.getvalue()] if kind == "parquet" else seeds
    for number in range(150):
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(8, len(data))
            value = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            data[at : at + dice.choice([1, 4])] = bytes([value]) * dice.choice([1, 4])
        (tmp_path / f"{number:03}.{kind}").write_bytes(data)

    command = [sys.executable, "-P", "-c", _PACK_ALL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
