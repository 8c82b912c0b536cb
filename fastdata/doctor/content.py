"""What kind of images a data set has, and what packing them differently would gain."""

import shlex
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

import numpy as np

from fastdata import native
from fastdata.batch.source import Ids, Source
from fastdata.converters.images.coding import Coding
from fastdata.dataset.catalog.format import ROW
from fastdata.doctor.decoding import interleaved
from fastdata.doctor.resident import Resident
from fastdata.doctor.results import Content, Remedy
from fastdata.errors import DecodeError
from fastdata.images.probe import FORMATS, probe
from fastdata.plan.crop import Crop
from fastdata.system.checksum import crc32c
from fastdata.system.threads import Threads

_MOST = 512  # images in memory
_MOST_BYTES = 256 << 20
_CODED = 96  # images that are re-encoded for a remedy
_MOST_OF_THEM = 0.5
_LARGER = 1.25  # a shorter side up to this times the target is not worth resizing
_SHORTER = 256 / 224  # side to resize to, over that of the crop: what evaluation resizes to


def take(source: Source, ids: Ids, *, seconds: float) -> tuple[Resident, Content]:
    """Read samples into memory for some seconds, or until there are enough of them.

    Args:
        source: The data set.
        ids: (N,) samples, at least one.
        seconds: Time for reading.

    Raises:
        CorruptError: One is damaged or missing.
        DecodeError: One is not an image.
    """
    images: list[bytes] = []
    end, size = time.perf_counter() + seconds, 0
    for sample in ids[:_MOST].tolist():
        images.append(source.read(sample))
        size += len(images[-1])
        if time.perf_counter() > end or size > _MOST_BYTES:
            break
    taken = ids[: len(images)]
    keys = source.keys(taken)
    resident = Resident(
        source.path, images, source.rows(taken), keys, has_checksums=source.has_checksums
    )
    return resident, _content(source, keys, images)


def remedies(
    path: str, resident: Resident, content: Content, crop: Crop, *, threads: int, seconds: float
) -> tuple[Remedy, ...]:
    """Pack some of the images in other ways that could help, and measure how fast they decode.

    Args:
        path: The data set, as given.
        resident: Images of it in memory.
        content: Their description.
        crop: The loader's crop.
        threads: Threads to encode, and to decode.
        seconds: Time to encode, and again to decode.
    """
    # only the core adds restart markers
    wanted = _ways(content, crop) if native.load() is not None else []
    if not wanted:
        return ()
    images = [resident.read(number) for number in range(min(_CODED, len(resident)))]
    coded = _code_all(images, [way.coding for way in wanted], threads, seconds)
    good = np.array([number for number, ways in enumerate(coded) if ways is not None], np.int64)
    if not len(good):
        return ()
    with ExitStack() as stack:
        as_is = Resident(
            resident.path,
            [images[number] for number in good.tolist()],
            resident.rows(good),
            resident.keys(good),
            has_checksums=resident.has_checksums,
        )
        packed = [
            _packed(resident, good, list(ways)) for ways in zip(*filter(None, coded), strict=True)
        ]
        sources: list[Source] = [
            stack.enter_context(closing(source)) for source in (as_is, *packed)
        ]
        # The originals are measured with them, so that other load affects both sides alike.
        speeds = interleaved([(source, threads) for source in sources], crop, seconds=seconds)
        sizes = [int(source.rows(np.arange(len(good)))["length"].sum()) for source in sources]
    return tuple(
        Remedy(
            f"fastdata pack {shlex.quote(path)} DST{way.options}",
            speed / speeds[0],
            size / sizes[0],
            way.note,
        )
        for way, speed, size in zip(wanted, speeds[1:], sizes[1:], strict=True)
    )


class _Way(NamedTuple):
    """A way to pack: options of the command, the same for the library, what it does to pixels."""

    options: str
    coding: Coding
    note: str


def _ways(content: Content, crop: Crop) -> list[_Way]:
    """Ways to pack that could make such images cheaper to decode."""
    ways = []
    if content.jpeg < _MOST_OF_THEM:
        note = "images become JPEGs of quality 90, without alpha"
        ways.append(_Way(" --format jpeg", Coding(format="jpeg"), note))
    elif content.runs < _MOST_OF_THEM:
        ways.append(_Way("", Coding(), "pixels do not change"))
    side = round(max(crop.shape) * _SHORTER)
    if content.shorter_side > _LARGER * side:
        note = f"images are resized to a shorter side of {side} pixels"
        ways.append(_Way(f" --resize {side}", Coding(resize=str(side)), note))
    return ways


def _content(source: Source, keys: Sequence[str], images: Sequence[bytes]) -> Content:
    infos = []
    for key, image in zip(keys, images, strict=True):
        try:
            infos.append(probe(image))
        except DecodeError as error:
            raise DecodeError(f"{source.path}: sample {key!r}: {error}") from error
    return Content(
        images=len(images),
        bytes=statistics.fmean(map(len, images)),
        shorter_side=int(statistics.median(min(info.width, info.height) for info in infos)),
        jpeg=statistics.fmean(info.format == "jpeg" for info in infos),
        runs=statistics.fmean(info.restart_interval > 0 for info in infos),
        progressive=statistics.fmean(info.progressive for info in infos),
    )


def _code_all(
    images: Sequence[bytes], ways: Sequence[Coding], threads: int, seconds: float
) -> list[list[bytes] | None]:
    """Encode images, each in every way, for some seconds; None for those that cannot be encoded."""
    coded: list[list[bytes] | None] = []
    end = time.perf_counter() + seconds
    with Threads(threads, "fastdata-code") as pool:
        while len(coded) < len(images) and (time.perf_counter() < end or not coded):
            some = images[len(coded) :][:threads]
            coded.extend(pool.map(lambda image: _code(image, ways), some))
    return coded


def _code(image: bytes, ways: Sequence[Coding]) -> list[bytes] | None:
    """The image encoded in each way, or None if it cannot be."""
    try:
        return [way.code_file(image).image for way in ways]
    except DecodeError:
        return None


def _packed(resident: Resident, numbers: Ids, images: Sequence[bytes]) -> Resident:
    """Images as in a packed data set, with sizes and checksums."""
    rows = np.zeros(len(images), ROW)
    for row, image in zip(rows, images, strict=True):
        info = probe(image)
        row["width"], row["height"] = info.width, info.height
        row["flags"], row["crc"] = FORMATS.index(info.format), crc32c(image)
    return Resident(resident.path, images, rows, resident.keys(numbers), has_checksums=True)
