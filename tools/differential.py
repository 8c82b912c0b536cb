"""Compares the pixels that fastdata loads, and those that it packs, with Pillow's, file by file.

    python tools/differential.py [FOLDER ...]

Without a folder, a small set of files that Pillow writes is compared. Each file is read by Pillow
(``Image.open(file).convert("RGB")``, as torchvision's ImageFolder does), by the loader as it is,
and by the loader as ``pack`` stores it. Printed are counts by format and mode, then each file that
is different or refused by fastdata alone and that no rule explains; if there is one, the exit code
is 1.
"""

import argparse
import io
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastdata.batch.decode import decode
from fastdata.converters.images.coding import Coding
from fastdata.errors import DecodeError
from fastdata.images.limits import MAX_PIXELS

Pixels = npt.NDArray[np.uint8]

LARGEST = 64 << 20  # bytes: larger files are for other tests

DIFFERENT, REFUSED = "DIFFERENT", "REFUSED BY US ALONE"

# Formats that `pack` reads, and the loader only once they are packed.
PACKED_ONLY = ("AVIF", "HEIF", "ICO", "JPEG2000", "PCX", "PPM", "PSD", "SGI", "SUN", "TGA")

# Formats of Pillow that are none of ours, with why.
NOT_OURS = {
    "BLP": "textures of games",
    "BUFR": "no picture",
    "CUR": "cursors",
    "DCX": "faxes",
    "DDS": "decoded in Python: minutes for a large image",
    "DIB": "what a clipboard holds",
    "EPS": "starts Ghostscript",
    "FITS": "values without a black and a white",
    "FLI": "video",
    "FTEX": "textures of games",
    "GBR": "brushes",
    "GRIB": "no picture",
    "HDF5": "no picture",
    "ICNS": "icons",
    "IM": "a format of Pillow's own",
    "IMT": "obsolete",
    "IPTC": "metadata",
    "JXL": "its plugin decodes before a size is known",
    "MCIDAS": "satellites' raw data",
    "MPEG": "video",
    "MSP": "obsolete",
    "PCD": "obsolete",
    "PIXAR": "obsolete",
    "QOI": "decoded in Python: minutes for a large image",
    "SPIDER": "values without a black and a white",
    "WMF": "drawings",
    "XBM": "source code",
    "XPM": "source code",
    "XVTHUMB": "obsolete",
}


def main() -> int:
    """Compare all files of the folders; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    folders = parser.parse_args().folders
    warnings.simplefilter("ignore")  # Pillow's, about damaged metadata
    _register_heif()
    if folders:
        return _report(_files(folders))
    with tempfile.TemporaryDirectory() as folder:
        _write_samples(Path(folder))
        return _report(_files([Path(folder)]))


def _register_heif() -> None:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return
    register_heif_opener()


def _files(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and 0 < path.stat().st_size <= LARGEST:
                yield path


def _report(paths: Iterator[Path]) -> int:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    wrong = []
    for path in paths:
        data = path.read_bytes()
        kind, mode, theirs, expected = _read_by_pillow(data)
        for way, read in (("loaded", _load), ("packed", _pack)):
            ours = _attempt(read, data, path.name)
            result, detail = _compare(theirs, expected, ours)
            if result in (DIFFERENT, REFUSED):
                result = _explained(kind, mode, way, result, detail) or result
            counts[kind, mode, way, result] += 1
            if result in (DIFFERENT, REFUSED):
                wrong.append(f"{path}: {kind} {mode}, {way}: {result}: {detail}")
    for (kind, mode, way, result), count in sorted(counts.items()):
        print(f"{kind:10} {mode:8} {way:8} {result:40} {count:6}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def _read_by_pillow(data: bytes) -> tuple[str, str, Pixels | str, Pixels | None]:
    """Format, mode, pixels or why there are none, and what ours may be instead."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                return str(image.format), image.mode, "too many pixels", None
            kind, mode = str(image.format), image.mode
            pixels = np.array(image.convert("RGB"), np.uint8)
            return kind, mode, pixels, _expected(image)
    except Exception as error:  # noqa: BLE001 - Pillow raises anything
        return "?", "?", str(error), None


def _expected(image: Any) -> Pixels | None:
    """What we make of modes whose conversion Pillow clips, computed in another way than ours."""
    values = np.asarray(image)
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        bits = image.tag_v2[258][0] if image.format == "TIFF" else 16
        plane = values.astype(np.int64) // 2 ** (bits - 8)
    elif image.mode in ("I", "F"):
        low, high = np.nanmin(values), np.nanmax(values)
        plane = np.interp(values, [low, high], [0, 255]).round() if high > low else values * 0
    else:
        return None
    return np.dstack([plane.astype(np.uint8)] * 3)


def _attempt(read: Callable[[bytes, str], Pixels], data: bytes, name: str) -> Pixels | str:
    try:
        return read(data, name)
    except DecodeError as error:
        return str(error)


def _load(data: bytes, _name: str) -> Pixels:
    return decode(data)


def _pack(data: bytes, name: str) -> Pixels:
    return _load(Coding().code_file(data, name).image, name)


def _compare(theirs: Pixels | str, expected: Pixels | None, ours: Pixels | str) -> tuple[str, str]:
    """Result and detail; a result in capitals is a fault unless a rule explains it."""
    if isinstance(theirs, str):
        return ("refused by both" if isinstance(ours, str) else "refused by Pillow alone"), ""
    if isinstance(ours, str):
        return REFUSED, ours
    wanted = theirs if expected is None else expected
    if ours.shape != theirs.shape:
        return DIFFERENT, f"{ours.shape} instead of {theirs.shape}"
    if (ours == wanted).all():
        return ("equal" if expected is None else "explained: Pillow clips these values"), ""
    return DIFFERENT, str(np.abs(ours.astype(np.int16) - wanted).max())


def _explained(kind: str, mode: str, way: str, result: str, detail: str) -> str | None:
    """The rule behind a difference or a refusal, or None."""
    refused, jpeg = result == REFUSED, kind in ("JPEG", "MPO")
    rules = {
        "libjpeg-turbo's CMYK": jpeg and mode == "CMYK" and not refused and detail in ("1", "2"),
        "its data are damaged": jpeg and refused and detail.startswith("Corrupt JPEG data"),
        "read at pack time only": refused and way == "loaded" and kind in PACKED_ONLY,
        "its end is missing": refused and not jpeg and detail.startswith("truncated "),
        "a checksum is wrong": refused and kind == "PNG" and detail.startswith("OpenCV cannot"),
        NOT_OURS.get(kind, ""): refused and kind in NOT_OURS,
    }
    return next((f"explained: {rule}" for rule, holds in rules.items() if holds), None)


def _write_samples(folder: Path) -> None:
    """A picture in the formats and modes that Pillow writes."""
    rng = np.random.default_rng(1)
    base = Image.fromarray(rng.integers(0, 256, (21, 29, 4), np.uint8))
    for ending, modes in _MODES.items():
        for mode in modes.split():
            image = base.convert("L").convert(mode) if mode in "1 I I;16 F" else base.convert(mode)
            image.save(folder / f"{mode.replace(';', '')}.{ending}")


_MODES = {
    "png": "1 L LA P RGB RGBA I;16",
    "gif": "L P RGBA",
    "bmp": "1 L P RGB RGBA",
    "tif": "1 L LA P RGB RGBA CMYK I;16 I F",
    "webp": "RGB RGBA",
    "tga": "L LA P RGB RGBA",
    "ppm": "1 L RGB I",
    "jp2": "L LA RGB RGBA",
    "sgi": "L RGB RGBA",
    "jpg": "L RGB CMYK",
}


if __name__ == "__main__":
    sys.exit(main())
